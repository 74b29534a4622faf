package consoletest

import (
	"fmt"
	"os"
	"testing"
)

// pages are all pages of the console.
var pages = []string{"overview", "tenants", "queues", "agents", "workspaces", "refusals"}

// ready says when a page shows what is live.
var ready = map[string]string{
	"overview":   `document.querySelectorAll("#members tr").length === 2 && document.querySelector("#chart-decisions path")?.getAttribute("d").includes("L")`,
	"tenants":    `document.querySelectorAll("#tenants-rows tr").length === 3 && document.querySelector("#chart-tenants path")?.getAttribute("d").includes("L")`,
	"queues":     `document.querySelectorAll("#lines tbody tr").length > 0`,
	"agents":     `document.querySelectorAll(".slots i.here").length > 0`,
	"workspaces": `document.querySelectorAll("#workspace-cards .card").length === 2`,
	"refusals":   `document.querySelectorAll("#refusal-rows tr").length > 3`,
}

// violations runs axe-core on the page as it stands, but for rows that are like
// those before them.
const violations = `axe.run({exclude: ["#refusal-rows tr:nth-child(n+8)"]}, {resultTypes: ["violations"]}).then((r) => JSON.stringify(
	r.violations.map((v) => v.id + ": " + v.help + " at " + v.nodes.map((n) => n.target.join(" ") + " " + (n.any[0]?.message ?? "")).join(", "))))`

// Every page shows live data without a violation that axe-core knows, in both
// themes, wide and narrow; and nothing stands outside of a narrow window.
func TestPagesInBothThemes(t *testing.T) {
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: make test installs it (npm ci)", err)
	}
	for _, l := range []look{{1280, false}, {1280, true}, {390, false}, {390, true}, {360, false}} {
		theme := map[bool]string{false: "light", true: "dark"}[l.dark]
		t.Run(fmt.Sprintf("%s %d", theme, l.width), func(t *testing.T) {
			tb := visit(t, replicas.open.ConsoleURL(), l)
			eval[any](tb, string(axe)+"; null")
			for _, page := range pages {
				tb.show(page)
				tb.until(ready[page])
				if out := eval[float64](tb, "document.documentElement.scrollWidth - innerWidth"); out > 0 {
					t.Errorf("%s is %v pixels wider than the window", page, out)
				}
				if l.width < 1280 {
					tb.picture(fmt.Sprintf("%s-%s-%d", page, theme, l.width))
					continue // the same elements, and axe takes its time
				}
				for _, v := range unmarshal[[]string](t, eval[string](tb, violations)) {
					t.Errorf("%s: %s", page, v)
				}
				tb.picture(fmt.Sprintf("%s-%s-%d", page, theme, l.width))
			}
		})
	}
}
