package simnet_test

import (
	"fmt"
	"time"

	"github.com/headway-limiter/headway/fleet/simnet"
)

func Example() {
	network := simnet.New(simnet.Config{Latency: time.Millisecond})
	a, _ := network.Listen("10.0.0.1:7946")
	b, _ := network.Listen("10.0.0.2:7946")

	a.WriteTo([]byte("are you there?"), b.Addr())
	packet := <-b.PacketCh()
	fmt.Printf("%s from %s\n", packet.Buf, packet.From)

	network.Cut(a.Addr(), b.Addr())
	a.WriteTo([]byte("and now?"), b.Addr())
	fmt.Println(network.Lost(), "lost")
	// Output:
	// are you there? from 10.0.0.1:7946
	// 1 lost
}
