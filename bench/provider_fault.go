package bench

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Fault is a way to spoil an answer.
type Fault string

// All faults. Each counts as a start in the ledger: the provider did take the
// request.
const (
	FaultHang       Fault = "hang"  // take the request and never answer
	FaultReset      Fault = "reset" // reset the connection before any answer
	FaultCut        Fault = "cut"   // close the connection in the middle of the answer
	FaultQuota      Fault = "429"   // out of quota for one second
	FaultBroken     Fault = "500"   // internal error
	FaultDown       Fault = "503"   // unavailable
	FaultOverloaded Fault = "529"   // overloaded
)

// FaultRule spoils a share of all requests.
type FaultRule struct {
	Fault       Fault
	Probability float64 // 0..1
}

// ParseFault reads "KIND:PROBABILITY", as in "529:0.01".
func ParseFault(text string) (FaultRule, error) {
	kind, share, _ := strings.Cut(text, ":")
	p, err := strconv.ParseFloat(share, 64)
	if err != nil {
		return FaultRule{}, fmt.Errorf("bench: fault %q is not KIND:PROBABILITY", text)
	}
	f := FaultRule{Fault: Fault(kind), Probability: p}
	return f, f.validate()
}

func (f FaultRule) validate() error {
	switch f.Fault {
	case FaultHang, FaultReset, FaultCut, FaultQuota, FaultBroken, FaultDown, FaultOverloaded:
	default:
		return fmt.Errorf("bench: fault %q is not hang, reset, cut, 429, 500, 503 or 529", f.Fault)
	}
	if !(f.Probability >= 0 && f.Probability <= 1) {
		return fmt.Errorf("bench: fault %s: probability %v is not in 0..1", f.Fault, f.Probability)
	}
	return nil
}

// chooseFault is the fault asked for, or the first rule that strikes. One
// number is drawn in any case, so that a header does not shift what later
// draws yield.
func (p *Provider) chooseFault(asked string, r *rand.Rand) Fault {
	luck := r.Float64()
	if asked != "" && (FaultRule{Fault: Fault(asked)}).validate() == nil {
		return Fault(asked)
	}
	for _, f := range p.cfg.Faults {
		if luck < f.Probability {
			return f.Fault
		}
		luck -= f.Probability
	}
	return ""
}

// spoiledEarly plays the faults that come before the provider has thought.
func (x *exchange) spoiledEarly() bool {
	if x.fault == "" {
		return false
	}
	x.ledger.spoil(x.fault)
	switch x.fault {
	case FaultHang:
		<-x.r.Context().Done()
		return true
	case FaultReset:
		x.call.End(0)
		x.reset()
		return true
	}
	return false
}

// spoiledLate plays the faults that are an answer, after the usual latency.
func (x *exchange) spoiledLate() bool {
	status, err := strconv.Atoi(string(x.fault))
	if err != nil {
		return false
	}
	kind := map[Fault]string{FaultQuota: "rate_limit_error", FaultOverloaded: "overloaded_error"}[x.fault]
	if kind == "" {
		kind = "server_error"
	}
	if x.fault == FaultQuota {
		x.w.Header().Set("Retry-After", "1")
	}
	x.call.End(0)
	writeError(x.w, status, kind, "simulated_fault", "simulated fault "+string(x.fault))
	return true
}

// reset drops the connection without a goodbye, where the protocol has one.
func (x *exchange) reset() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.abort() // HTTP/2 resets the stream
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) // close with RST
	}
	conn.Close()
}

// abort flushes what was written, closes the connection and does not return.
func (x *exchange) abort() {
	x.call.End(0)
	http.NewResponseController(x.w).Flush()
	panic(http.ErrAbortHandler)
}
