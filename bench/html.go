package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed report.html
var pageText string

// pageTemplate asks for nothing from outside: style and charts are in the page.
var pageTemplate = template.Must(template.New("report").Parse(pageText))

// colours are the scopes that have one, by the names of their style classes.
var colours = []string{"fifo", "replica", "gossip", "exact"}

// page is what the template shows.
type page struct {
	Scenario, Heading, Machine, Version string
	Conditions                          string
	Scopes, Colours                     []string
	Figures, Tenants, Cost, Faults      [][]string
	Outages                             [][]string // nil: the store was never away
	Legend                              string     // of Outages
	Bars, Time, Shares, Waits           template.HTML
}

// WriteHTML writes the report as one page that needs nothing else.
func (c Comparison) WriteHTML(w io.Writer) error {
	p := page{
		Scenario: c[0].Scenario, Heading: c.Heading(), Machine: c[0].Machine, Version: c[0].Version, Conditions: conditions(c),
		Colours: colours, Figures: c.table(), Tenants: c.tenantTable(), Cost: c.costTable(),
		Bars: c.bars(), Time: c.overTime(), Shares: c.shares(), Waits: c.waits(),
	}
	for _, r := range c {
		p.Scopes = append(p.Scopes, r.Scope)
	}
	if faults := c.faultTable(); len(faults) > 1 {
		p.Faults = faults
	}
	if cells := outages(c); len(cells) > 1 {
		p.Outages, p.Legend = cells, outageLegend
	}
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("bench: write report: %w", err)
	}
	return nil
}
