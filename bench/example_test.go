package bench_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// Eighty requests per second between a heavy tenant, one of weight 3 and two
// that want little: the small ones are served in full, the rest is divided by
// weight.
func ExampleEntitled() {
	demand := []float64{200, 60, 8, 8}
	weight := []float64{1, 3, 1, 1}
	fmt.Println(bench.Entitled(80, demand, weight))
	// Output: [16 48 8 8]
}

func ExampleJain() {
	entitled := []float64{16, 48, 8, 8}
	fair := bench.Satisfaction([]float64{15, 45, 7.5, 7.5}, entitled)
	greedy := bench.Satisfaction([]float64{60, 18, 1, 1}, entitled)
	fmt.Printf("%.2f %.2f\n", bench.Jain(fair), bench.Jain(greedy))
	// Output: 1.00 0.34
}

func ExampleDriver() {
	provider, err := bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{Latency: bench.Constant(0.010)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer provider.Close()
	driver, err := bench.NewDriver(bench.DriverConfig{
		Targets: []string{provider.URL}, // usually those of the replicas before it
		Loads:   []bench.Load{{Tenant: "ann", Weight: 1, Rate: 50, Model: "m"}},
		Grace:   time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	driver.Run(ctx)
	ann, seen := driver.Stats()[0], provider.Ledger().Snapshot()
	fmt.Println("all served:", ann.Admitted == ann.Offered, "- the judge agrees:", ann.Admitted == seen.Tenants["ann"].Starts)
	// Output: all served: true - the judge agrees: true
}
