package stage

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
)

func TestProf(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("N"))
	s, _ := bench.FindScenario("heavyall")
	r, err := Run(t.Context(), Options{Scenario: s, Scope: os.Getenv("SCOPE"), Replicas: n, Tenants: 30, Seed: 1, Limit: 100, Warm: 3 * time.Second, Measured: 10 * time.Second, Redis: "127.0.0.1:16391", Logs: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	bench.Comparison{r}.WriteText(os.Stdout)
	t.Log(r.ReplicasUsed, r.Tenants[0], r.InteractiveRefusedRatio)
}
