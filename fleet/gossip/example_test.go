package gossip_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/fleet/gossip"
)

// Two replicas on free ports of this machine. The second is told where the first
// is; a real one gets that from its configuration and keeps trying.
func Example() {
	quiet := slog.New(slog.DiscardHandler)
	first, err := gossip.Start(gossip.Config{Name: "gw-1", Bind: "127.0.0.1:0", Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := gossip.Start(gossip.Config{Name: "gw-2", Bind: "127.0.0.1:0", Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	second.Publish([]fleet.Pool{{Name: "model:gpt", Depth: 4}}, 12)
	answered, err := second.Join(first.Addr())
	fmt.Println(answered, "answered,", second.Members(), "members", err)

	for _, node := range []*gossip.Node{second, first} {
		node.Close(context.Background())
	}
	// Output:
	// 1 answered, 2 members <nil>
}
