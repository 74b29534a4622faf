package stage

import (
	"io"
	"time"
)

// chunk is something on its way through a slow line.
type chunk struct {
	data []byte
	due  time.Time
}

// maxUnderWay bounds the chunks on one slow line. A sender that is faster has
// to wait, as it would for a full window.
const maxUnderWay = 4096

// passOn copies from in to out until either ends. What comes out is as late as
// delay says at its coming in: a long line, not a narrow one. Order is kept
// when the delay becomes shorter.
func passOn(out io.Writer, in io.Reader, delay func() time.Duration) {
	line := make(chan chunk, maxUnderWay)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c := range line {
			time.Sleep(time.Until(c.due))
			if _, err := out.Write(c.data); err != nil {
				break
			}
		}
		for range line { // the reader must not stand before a full line for ever
		}
	}()
	buf := make([]byte, maxDatagram)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			line <- chunk{append([]byte(nil), buf[:n]...), time.Now().Add(delay())}
		}
		if err != nil {
			break
		}
	}
	close(line)
	<-done
}
