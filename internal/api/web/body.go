package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxBuffer is the longest message after which the memory that it took is kept for the next.
const maxBuffer = 16 << 10

// body is a request body. Each message in it may have limit bytes: a watch's
// body has many and no end, so a limit on the whole would break it.
type body struct {
	io.ReadCloser
	limit, left int64
	broken      bool // the connection failed
	fail        context.CancelCauseFunc
	duplex      bool           // more messages may follow, at any time
	silent      bool           // nothing of the next one is there
	behind      bool           // something of the next one came with the last
	unread      []byte         // of what a decoder had read, and no other has read since
	begun       func()         // something of another message is there
	arrived     func(rest int) // the message, or the last of it, is there, and so much behind it
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

// hasText reports whether there is more than space between messages.
func hasText(data []byte) bool { return len(bytes.TrimLeft(data, " \t\r\n")) > 0 }

// decode decodes the next message. It tells the request what is wrong with it, because the gateway
// drops the errors it meets in a stream.
func (b *body) decode(dec *decoder, v any) error {
	b.left = b.limit
	if b.behind {
		b.behind = false
		b.begun() // now: before, the call may not have taken the last
	}
	err := dec.Decode(v)
	switch {
	case err == nil && b.duplex:
		b.next(dec)
		return nil
	case err == nil:
		// To its end, which not every call of the gateway looks for, and while
		// the wait is still bounded.
		_, _ = io.Copy(io.Discard, b)
		return nil
	case errors.Is(err, io.EOF), b.broken && !b.duplex:
		return err
	case b.broken: // fail keeps the first reason, which may be why it broke
	case errors.As(err, new(*unknownFieldError)):
	case !errors.Is(err, errTooLarge):
		err = fmt.Errorf("malformed JSON in request: %w", err)
	}
	b.fail(err)
	if b.duplex {
		// The gateway would close its stream now, and the call behind could end
		// well before it sees that it is cancelled: nobody would be told.
		<-b.ended
	}
	return err
}

// next goes on to the next message of a stream. Until that begins it keeps no more than a little
// memory, and no time runs.
func (b *body) next(dec *decoder) {
	rest := append(dec.rest(), b.unread...)
	b.arrived(len(rest))
	if b.limit-b.left > maxBuffer {
		dec.json, b.unread = nil, rest
	}
	b.behind = hasText(rest)
	b.silent = !b.behind
}
