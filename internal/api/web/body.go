package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxBuffer is the longest message whose memory is kept for the next one.
const maxBuffer = 16 << 10

// body is a request body. The limit applies to each message in it, because the body of a watch is
// an endless series of messages.
type body struct {
	io.ReadCloser
	limit, left int64
	broken      bool // the connection failed
	fail        context.CancelCauseFunc
	duplex      bool           // more messages may follow, at any time
	silent      bool           // nothing of the next message has arrived
	behind      bool           // part of the next message arrived with the last one
	unread      []byte         // read by an earlier decoder and not used yet
	begun       func()         // called when part of another message has arrived
	arrived     func(rest int) // called when a message has arrived, with the number of bytes after it
	ended       chan struct{}  // closed when the request has been answered
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	p = p[:min(int64(len(p)), b.left)]
	if len(b.unread) > 0 {
		n := copy(p, b.unread)
		b.unread = b.unread[n:]
		b.left -= int64(n)
		return n, nil
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.silent && hasText(p[:n]) {
		b.silent = false
		b.begun()
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.arrived(0)
	default:
		b.broken = true
	}
	return n, err
}

// hasText reports whether there is anything but space between messages.
func hasText(data []byte) bool { return len(bytes.TrimLeft(data, " \t\r\n")) > 0 }

// decode decodes the next message. It passes errors to the request, because the gateway drops the
// errors of a stream.
func (b *body) decode(dec *decoder, v any) error {
	b.left = b.limit
	if b.behind {
		b.behind = false
		b.begun() // not earlier: the call may not have read the last message
	}
	err := dec.Decode(v)
	switch {
	case err == nil && b.duplex:
		b.next(dec)
		return nil
	case err == nil:
		// Read to the end while the wait is still bounded; not every call of the gateway does so.
		_, _ = io.Copy(io.Discard, b)
		return nil
	case errors.Is(err, io.EOF), b.broken && !b.duplex:
		return err
	case b.broken: // fail keeps the first error, which may be the cause
	case errors.As(err, new(*unknownFieldError)):
	case !errors.Is(err, errTooLarge):
		err = fmt.Errorf("malformed JSON in request: %w", err)
	}
	b.fail(err)
	if b.duplex {
		// The gateway would close its stream now, and the call could end before it notices the
		// cancellation, without an answer to the client.
		<-b.ended
	}
	return err
}

// next prepares for the next message of a stream. Until that begins, the body keeps little memory,
// and no timeout runs.
func (b *body) next(dec *decoder) {
	rest := append(dec.rest(), b.unread...)
	b.arrived(len(rest))
	if b.limit-b.left > maxBuffer {
		dec.json, b.unread = nil, rest
	}
	b.behind = hasText(rest)
	b.silent = !b.behind
}
