package redisstore

import (
	"errors"
	"os"
	"strings"

	"github.com/redis/rueidis"
)

// Kinds of failure: a metric label, and the closed set of what Health says.
const (
	kindTimeout    = "timeout"    // no answer within the budget
	kindConnection = "connection" // refused, reset, closed
	kindScript     = "script"     // any other error reply
	kindPanic      = "panic"      // the client library panicked
	kindBusy       = "queue_full" // too many calls outstanding
	kindOvertaken  = "overtaken"  // resent too often
	kindReply      = "reply"      // a reply that no script of ours gives
	kindNowhere    = "no_server"  // no server is known to keep these keys
)

// codes are the error replies worth telling apart, and whether they are about
// the whole server (true) or about the keys of one call. The first word of an
// error reply is its code, a part of the protocol; the rest is prose.
var codes = map[string]bool{
	"LOADING": true, "READONLY": true, "BUSY": true, "OOM": true, "CLUSTERDOWN": true, "MASTERDOWN": true,
	"MISCONF": true, "NOREPLICAS": true, "NOAUTH": true, "WRONGPASS": true, "NOPERM": true,
	"TRYAGAIN": false, "MOVED": false, "ASK": false, "NOSCRIPT": false,
}

// hints say of some codes which fields of the configuration they are about.
var hints = map[string]string{
	"NOAUTH":    "set redis.password",
	"WRONGPASS": "check redis.username and redis.password",
	"NOPERM":    "what redis.username may do is not enough",
}

// failure is an error of one call, with its kind.
type failure struct {
	kind string
	err  error
}

// Error tells a server's own words as they are, for they begin with the code, and
// for those that mean a wrong configuration where that is.
func (f *failure) Error() string {
	text := f.err.Error()
	if _, coded := codes[f.kind]; !coded {
		return f.kind + ": " + text
	}
	if hint := hints[f.kind]; hint != "" {
		return text + " (" + hint + ")"
	}
	return text
}

func (f *failure) Unwrap() error { return f.err }

// hard reports whether the failure is one of the whole server, so that a few in
// a row are enough to leave it alone.
func (f *failure) hard() bool {
	return f.kind == kindTimeout || f.kind == kindConnection || codes[f.kind]
}

// elsewhere reports whether a server said that the keys are, or are about to be,
// with another: of itself this says nothing bad.
func (f *failure) elsewhere() bool {
	return f.kind == "MOVED" || f.kind == "ASK" || f.kind == "TRYAGAIN"
}

var (
	errNowhere   = &failure{kindNowhere, errors.New("no server is known to keep these keys")}
	errTimeout   = &failure{kindTimeout, errors.New("no answer within the budget")}
	errBusy      = &failure{kindBusy, errors.New("too many calls outstanding")}
	errReply     = &failure{kindReply, errors.New("malformed script reply")}
	errOvertaken = &failure{kindOvertaken, errors.New("overtaken by other calls of this replica too often")}
	errNotSent   = &failure{kindTimeout, errors.New("given up before it was sent")}
)

// dialError says that there was no connection to send anything over.
type dialError struct{ err error }

func (d *dialError) Error() string { return d.err.Error() }

func (d *dialError) Unwrap() error { return d.err }

// classify names an error of rueidis and tells whether its call may have run.
// Scripts read everything before they write, so an error reply proves that
// nothing did.
func classify(err error) (*failure, ran) {
	if re, ok := rueidis.IsRedisErr(err); ok {
		code, _, _ := strings.Cut(re.Error(), " ")
		if _, known := codes[code]; known {
			return &failure{code, err}, ranNot
		}
		return &failure{kindScript, err}, ranNot
	}
	var dial *dialError
	if errors.As(err, &dial) {
		return &failure{kindConnection, err}, ranNot
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &failure{kindTimeout, err}, ranUnknown
	}
	return &failure{kindConnection, err}, ranUnknown
}

// missing reports whether the server does not know the script.
func (f *failure) missing() bool { return f != nil && f.kind == "NOSCRIPT" }
