package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxBuffer is the size, in bytes, of the longest message whose memory is kept for the next
// message.
const maxBuffer = 16 << 10

// body is a request body. The limit applies to each message in the body rather than to the whole
// body, because the body of a watch is an endless series of messages.
type body struct {
	io.ReadCloser
	limit, left int64
	broken      bool // the connection has failed
	fail        context.CancelCauseFunc
	duplex      bool   // more messages may follow at any time
	silent      bool   // no part of the next message has arrived
	behind      bool   // part of the next message arrived together with the previous one
	unread      []byte // read by an earlier decoder but not used yet
	begun       func() // called when part of another message has arrived
	// called when a message has arrived, with the number of bytes after it
	arrived func(rest int)
	ended   chan struct{} // closed when the response is complete
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

// hasText reports whether data contains more than the white space between messages.
func hasText(data []byte) bool { return len(bytes.TrimLeft(data, " \t\r\n")) > 0 }

// decode decodes the next message. If there is an error, decode passes it to the request, because
// the gateway drops stream errors.
func (b *body) decode(dec *decoder, v any) error {
	b.left = b.limit
	if b.behind {
		b.behind = false
		b.begun() // delayed until now, because the call may not have read the previous message
	}
	err := dec.Decode(v)
	switch {
	case err == nil && b.duplex:
		b.next(dec)
		return nil
	case err == nil:
		// Read to the end while the timeout is still running. Not every gateway call does so.
		_, _ = io.Copy(io.Discard, b)
		return nil
	case errors.Is(err, io.EOF), b.broken && !b.duplex:
		return err
	case b.broken: // keep the first error, which may be the cause
	case errors.As(err, new(*unknownFieldError)):
	case !errors.Is(err, errTooLarge):
		err = fmt.Errorf("malformed JSON in request: %w", err)
	}
	b.fail(err)
	if b.duplex {
		// The gateway would now close its stream. The call could then end before it detects the
		// cancellation, and the client would not get a response.
		<-b.ended
	}
	return err
}

// next prepares for the next message of a stream. Until that message begins, the body uses little
// memory and no timeout is running.
func (b *body) next(dec *decoder) {
	rest := append(dec.rest(), b.unread...)
	b.arrived(len(rest))
	if b.limit-b.left > maxBuffer {
		dec.json, b.unread = nil, rest
	}
	b.behind = hasText(rest)
	b.silent = !b.behind
}
