package gateway

import "sync"

// chunk is the most that is read from an upstream at once, in bytes, and sip
// what is read of an answer that comes a little at a time. Most streams do, and
// stand still for most of their time, holding the buffer: with chunk for each,
// ten thousand would hold 320 MB.
const (
	chunk = 32 << 10
	sip   = 2 << 10
)

// chunks holds idle large buffers.
var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// intake is what one answer is read into: a small buffer, and a large one for
// as long as the small one would be filled.
type intake struct {
	small [sip]byte
	large *[chunk]byte // nil: the small one is enough
}

// next is what to read into after a read of n bytes.
func (i *intake) next(n int) []byte {
	switch {
	case n >= sip && i.large == nil:
		i.large = chunks.Get().(*[chunk]byte)
	case n < sip:
		i.free()
	}
	if i.large != nil {
		return i.large[:]
	}
	return i.small[:]
}

// free gives the large buffer back.
func (i *intake) free() {
	if i.large != nil {
		chunks.Put(i.large)
		i.large = nil
	}
}
