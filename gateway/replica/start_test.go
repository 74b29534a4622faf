package replica

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/headway-limiter/headway/gateway/config"
)

// TestStartClosesWhatItOpened: whatever cannot be opened, Start says so and
// leaves nothing behind.
func TestStartClosesWhatItOpened(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for what, text := range map[string]string{
		"gossip": "fleet: {bind: %q}\nredis: {mode: standalone, address: \"127.0.0.1:1\"}",
		"api":    "server: {listen: %q}",
		"admin":  "server: {listen: \"127.0.0.1:0\", admin_listen: %q}",
	} {
		text = fmt.Sprintf(text, taken.Addr().String()) + `
anonymous: true
upstreams: [{name: u, url: "http://127.0.0.1:1"}]
routes: [{path: "/*", upstream: u}]
`
		cfg, err := config.Parse([]byte(text), os.LookupEnv)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r, err := Start(context.Background(), cfg, Options{}); err == nil {
			t.Errorf("%s: started on a taken port", what)
			r.Shutdown(context.Background())
		}
	}
}
