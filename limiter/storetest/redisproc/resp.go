package redisproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Conn is one plain connection (RESP2). It is not safe for concurrent use.
// Sending and receiving are separate, so that a caller can lose a reply.
type Conn struct {
	c net.Conn
	r *bufio.Reader
}

// ReplyError is an error reply of the server, as text without its dash.
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// dialTimeout bounds connecting to a server on this machine.
const dialTimeout = 2 * time.Second

// Dial connects to host:port.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("redisproc: %w", err)
	}
	return NewConn(c), nil
}

// NewConn speaks over an open connection, which it owns from now on.
func NewConn(c net.Conn) *Conn { return &Conn{c: c, r: bufio.NewReader(c)} }

// Close closes the connection, whatever is under way.
func (c *Conn) Close() error { return c.c.Close() }

// Do sends a command and receives its reply.
func (c *Conn) Do(args ...string) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Send writes a command.
func (c *Conn) Send(args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := io.WriteString(c.c, b.String())
	return err
}

// Receive reads one reply: int64, string, nil, or []any of them. An error reply
// is returned as a ReplyError.
func (c *Conn) Receive() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("redisproc: empty reply line")
	}
	switch text := line[1:]; line[0] {
	case '+':
		return text, nil
	case '-':
		return nil, ReplyError(text)
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$':
		return c.bulk(text)
	case '*':
		return c.array(text)
	}
	return nil, fmt.Errorf("redisproc: unknown reply %q", line)
}

// bulk reads a string of the given size; a negative size is nil.
func (c *Conn) bulk(size string) (any, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 {
		return nil, err
	}
	data := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, data); err != nil {
		return nil, err
	}
	return string(data[:n]), nil
}

// array reads as many replies; a negative size is nil. An error reply inside
// fails the whole, which no script of ours has.
func (c *Conn) array(size string) (any, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 {
		return nil, err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = c.Receive(); err != nil {
			return nil, err
		}
	}
	return list, nil
}
