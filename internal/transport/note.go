package transport

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
)

// A note is something that a member tells another one beside all messages, in no order with them.
// A release that does not know the method answers that, and nothing else comes of it: so notes are
// for what may be lost, and no format of messages changes for them.

var noteDesc = grpc.MethodDesc{MethodName: "Note", Handler: serveNote}

// MaxNote is the largest note, in bytes.
const MaxNote = 64 << 10

// errNoNote means that a note was not sent.
var errNoNote = errors.New("transport: the member is not connected")

// Note tells another member's process something, and waits until it has got it, or ctx ends. Of a
// note that was not got, nobody is told but the caller.
func (t *Transport) Note(ctx context.Context, member uint64, data []byte) error {
	l := t.link(member)
	if l == nil {
		return errUnknown
	}
	l.mu.Lock()
	out := l.out
	l.mu.Unlock()
	if out == nil {
		return errNoNote
	}
	_, err := out.call(ctx, noteDesc.MethodName, &blob{data: data})
	return err
}

// serveNote takes a note of a member whose messages come over the same connection.
func serveNote(
	srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
) (any, error) {
	t := srv.(*Transport)
	h, note, err := t.called(ctx, decode)
	switch {
	case err != nil:
		return nil, err
	case len(note.data) > MaxNote:
		return nil, fmt.Errorf("transport: a note of %d bytes", len(note.data))
	case !t.hears(ctx, h.from):
		return nil, errors.New("transport: the note is not of a member that is connected")
	}
	t.cfg.Noted(h.from, note.data)
	return new(blob), nil
}
