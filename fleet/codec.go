package fleet

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Bounds of the encoding. What exceeds them is left out when encoding, and an
// error when decoding.
const (
	// MaxDatagram is the most a digest may take when it is sent as one packet:
	// memberlist's 1,400 bytes less its own framing and encryption.
	MaxDatagram = 1300
	// MaxName bounds the names of replicas, pools and tenants, in bytes.
	MaxName     = 128
	maxPools    = 256
	maxTenants  = 256
	maxReplicas = 4096

	// format is the first byte of a digest. Fields are only ever appended within
	// a format: a decoder ignores bytes after those it knows, so that versions
	// of the program can be mixed in a fleet.
	format = 1
)

// ErrDigest is wrapped by every decoding error.
var ErrDigest = errors.New("fleet: malformed digest")

// Encode appends the binary form of d to b, in at most limit bytes, and returns
// how many pools, tenants, throttles and agents had to be left out. Kept are the first
// agents, in up to a quarter of the room; the first throttles, in up to half of the
// rest; the first pools, since they are the
// busiest; and of all of these pools equally many first tenants. A limit of 512
// bytes is always enough for a digest without either.
func (d Digest) Encode(b []byte, limit int) (out []byte, omitted int) {
	start := len(b)
	b = append(b, format)
	b = appendName(b, d.Replica)
	b = binary.LittleEndian.AppendUint64(b, d.Incarnation)
	b = binary.AppendUvarint(b, d.Sequence)
	b = appendName(b, d.Build)
	b = appendName(b, d.Config)
	b = binary.AppendUvarint(b, uint64(max(0, d.InFlight)))
	room := limit - (len(b) - start) - 2
	agents, away := d.fitAgents(room / 4)
	room -= len(agents)
	last, left := d.fitThrottles(room / 2)
	keep, omitted := d.fit(room - len(last))
	b = binary.AppendUvarint(b, uint64(len(keep)))
	for i, n := range keep {
		b = d.Pools[i].appendHead(b, n)
		for _, t := range d.Pools[i].Tenants[:n] {
			b = t.append(b)
		}
	}
	return append(append(b, last...), agents...), omitted + left + away
}

// fit chooses what of d's pools goes into room bytes: for each pool kept, the
// number of its tenants.
func (d Digest) fit(room int) (keep []int, omitted int) {
	var scratch []byte
	size := func(b []byte) int { scratch = b[:0]; return len(b) }
	for _, p := range d.Pools {
		if n := size(p.appendHead(scratch, maxTenants)); n <= room && len(keep) < maxPools {
			room -= n
			keep = append(keep, 0)
			continue
		}
		break
	}
	for _, p := range d.Pools[len(keep):] {
		omitted += 1 + len(p.Tenants)
	}
	for rank := range maxTenants {
		more := false
		for i := range keep {
			p := &d.Pools[i]
			if keep[i] != rank || rank >= len(p.Tenants) {
				continue
			}
			if n := size(p.Tenants[rank].append(scratch)); n <= room {
				room -= n
				keep[i]++
				more = true
			}
		}
		if !more {
			break
		}
	}
	for i, n := range keep {
		omitted += len(d.Pools[i].Tenants) - n
	}
	return keep, omitted
}

func (p *Pool) appendHead(b []byte, tenants int) []byte {
	b = appendName(b, p.Name)
	b = binary.AppendUvarint(b, uint64(clamp(p.Spacing, 0, math.MaxInt64)))
	b = binary.AppendUvarint(b, uint64(clamp(p.Depth, 0, math.MaxInt32)))
	return binary.AppendUvarint(b, uint64(tenants))
}

func (t *TenantLoad) append(b []byte) []byte {
	b = appendName(b, t.Tenant)
	b = binary.AppendUvarint(b, uint64(clamp(t.Queued, 0, math.MaxInt32)))
	served := t.Served
	if !validServed(served) {
		served = 0
	}
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(served))
}

func clamp[N int | time.Duration](n, low, high N) N { return max(low, min(n, high)) }

func validServed(f float64) bool { return f >= 0 && !math.IsInf(f, 1) }

// packed is the length of the hex digits at the end of most names, which take
// half as many bytes.
const packed = 32

// appendName writes a name cut to MaxName bytes: twice the length of its plain
// part, plus one if 16 packed bytes follow it.
func appendName(b []byte, s string) []byte {
	s = s[:min(len(s), MaxName)]
	if n := len(s) - packed; n >= 0 && lowerHex(s[n:]) {
		b = binary.AppendUvarint(b, uint64(n)<<1|1)
		b = append(b, s[:n]...)
		b, _ = hex.AppendDecode(b, []byte(s[n:])) // cannot fail: all are hex digits
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(s))<<1)
	return append(b, s...)
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Decode parses what Encode wrote. Whatever the input, it returns a digest within
// the bounds of this package or an error that wraps ErrDigest, and allocates no
// more than a small multiple of the input's length.
func Decode(b []byte) (Digest, error) {
	r := reader{b: b}
	if v := r.byte(); v != format && r.err == nil {
		return Digest{}, fmt.Errorf("%w: format %d, want %d", ErrDigest, v, format)
	}
	d := Digest{Replica: r.name(), Incarnation: r.fixed(), Sequence: r.uvarint(math.MaxUint64), Build: r.name(), Config: r.name()}
	d.InFlight = int64(r.uvarint(math.MaxInt64))
	for range r.count(maxPools, 4) {
		d.Pools = append(d.Pools, r.pool())
	}
	if len(r.b) > 0 { // versions of the program before throttles end here
		d.Throttles = r.throttles()
	}
	if len(r.b) > 0 { // and those before agents here
		d.Agents = r.agents()
	}
	if r.err == nil && d.Replica == "" {
		r.fail("no replica name")
	}
	if r.err != nil {
		return Digest{}, r.err
	}
	return d, nil
}

// reader consumes b. After the first error it yields zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s, %d bytes before the end", ErrDigest, what, len(r.b))
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail("cut short")
		return make([]byte, min(n, 8))
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) fixed() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.fail("number out of range")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of elements that take at least size bytes each.
func (r *reader) count(most uint64, size int) int {
	n := int(r.uvarint(most))
	if n > len(r.b)/size {
		r.fail("more elements than bytes")
		return 0
	}
	return n
}

func (r *reader) name() string {
	v := r.uvarint(2*MaxName + 1)
	n := int(v >> 1)
	if v&1 == 0 {
		return string(r.plain(n))
	}
	if n+packed > MaxName {
		r.fail("name too long")
		return ""
	}
	s := slices.Clone(r.plain(n))
	return string(hex.AppendEncode(s, r.plain(packed/2)))
}

// plain is take for text: empty after an error.
func (r *reader) plain(n int) []byte {
	if n > len(r.b) {
		r.fail("cut short")
		return nil
	}
	return r.take(n)
}

func (r *reader) pool() Pool {
	p := Pool{Name: r.name(), Spacing: time.Duration(r.uvarint(math.MaxInt64)), Depth: int(r.uvarint(math.MaxInt32))}
	for range r.count(maxTenants, 10) {
		t := TenantLoad{Tenant: r.name(), Queued: int(r.uvarint(math.MaxInt32)), Served: math.Float64frombits(r.fixed())}
		if !validServed(t.Served) {
			r.fail("served cost is not a finite number ≥ 0")
		}
		p.Tenants = append(p.Tenants, t)
	}
	return p
}
