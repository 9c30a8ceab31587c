package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"leasehold.dev/test/virtual"
)

// result is what the receiving handler got.
type result struct {
	from   uint64
	header string
	bytes  int
	sum    []byte
	err    error
}

// collect makes m receive snapshots and returns the results.
func collect(m *member, verdict error) <-chan result {
	results := make(chan result, 1)
	m.snapshot = func(
		_ context.Context, from uint64, header []byte, next func() ([]byte, error),
	) error {
		r := result{from: from, header: string(header)}
		for r.err == nil {
			var chunk []byte
			chunk, r.err = next()
			r.sum = append(r.sum, chunk...)
		}
		r.bytes = len(r.sum)
		results <- r
		if errors.Is(r.err, io.EOF) {
			return verdict
		}
		return r.err
	}
	return results
}

// sendSnapshot calls SendSnapshot for member 2.
func (m *member) sendSnapshot(
	ctx context.Context, header []byte, next func() ([]byte, error),
) error {
	return m.sendSnapshotTo(ctx, 2, header, next)
}

// sendSnapshotTo calls SendSnapshot, and retries it if the machine was paused for so long that the
// connection attempt timed out.
func (m *member) sendSnapshotTo(
	ctx context.Context, to uint64, header []byte, next func() ([]byte, error),
) error {
	for {
		err := m.SendSnapshot(ctx, to, header, next)
		var dial *net.OpError
		if !errors.As(err, &dial) || dial.Op != "dial" || !dial.Timeout() {
			return err
		}
	}
}

// TestSnapshot checks that a snapshot with many chunks, one or none arrives complete, with its
// header, while messages overtake it.
func TestSnapshot(t *testing.T) { virtual.Test(t, testSnapshot) }

func testSnapshot(t *testing.T) {
	a, b := pair(t, options{})
	results := collect(b, nil)
	for _, n := range []int{0, 1, 64} {
		if err := a.sendSnapshot(t.Context(), []byte("header"), chunks(n, 256<<10)); err != nil {
			t.Fatal(err)
		}
		r := want(t, results)
		if r.from != 1 || r.header != "header" || !errors.Is(r.err, io.EOF) {
			t.Errorf("from %d, header %q, end %v", r.from, r.header, r.err)
		}
		var all []byte
		next := chunks(n, 256<<10)
		for chunk, err := next(); err == nil; chunk, err = next() {
			all = append(all, chunk...)
		}
		if !bytes.Equal(all, r.sum) {
			t.Errorf("%d chunks: %d bytes, want the %d that were sent", n, len(r.sum), len(all))
		}
	}
	a.meet(b, "after")
}

// TestSnapshotRefused checks that the receiver's error reaches the sender, whether early or late,
// and that the sender stops.
func TestSnapshotRefused(t *testing.T) { virtual.Test(t, testSnapshotRefused) }

func testSnapshotRefused(t *testing.T) {
	a, b := pair(t, options{})
	collect(b, errors.New("the disk is full"))
	err := a.sendSnapshot(t.Context(), nil, chunks(3, 10))
	if remote := new(remoteError); !errors.As(err, &remote) || remote.Text != "the disk is full" {
		t.Errorf("at the end: %v", err)
	}
	b.snapshot = func(
		_ context.Context, _ uint64, _ []byte, next func() ([]byte, error),
	) error {
		if _, err := next(); err != nil {
			return err
		}
		return errors.New("too old")
	}
	endless := func() ([]byte, error) { return make([]byte, 1<<20), nil }
	err = a.sendSnapshot(t.Context(), nil, endless)
	if remote := new(remoteError); !errors.As(err, &remote) || remote.Text != "too old" {
		t.Errorf("in the middle: %v", err)
	}
}

// TestSnapshotBreaks checks that an interrupted snapshot causes an error at both ends and is never
// mistaken for a complete one. The interruption is a failing source, a caller that gives up, a cut
// connection, a member that leaves, or either side closing.
func TestSnapshotBreaks(t *testing.T) { virtual.Test(t, testSnapshotBreaks) }

func testSnapshotBreaks(t *testing.T) {
	stop := errors.New("cannot read the disk")
	for _, c := range []struct {
		name string
		act  func(a, b *member, f *forwarder, cancel func()) error
		want error
	}{
		{"source", func(*member, *member, *forwarder, func()) error { return stop }, stop},
		{"caller", func(_, _ *member, _ *forwarder, cancel func()) error {
			cancel()
			return nil
		}, context.Canceled},
		{"cut", func(_, _ *member, f *forwarder, _ func()) error {
			f.cut()
			return nil
		}, nil},
		{"left", func(a, _ *member, _ *forwarder, _ func()) error {
			a.Update(nil)
			return nil
		}, errUnknown},
		{"closed", func(a, _ *member, _ *forwarder, _ func()) error {
			a.cancel()
			return nil
		}, ErrClosed},
		{"receiver", func(_, b *member, _ *forwarder, _ func()) error {
			b.server.Stop()
			return nil
		}, nil},
	} {
		virtual.Step(t, c.name, func(t *testing.T) {
			a, b := start(t, 1, options{}), start(t, 2, options{})
			f := forward(t, b.url.Host)
			a.Update([]Peer{{ID: 2, URLs: f.urls()}})
			results := collect(b, nil)
			inner, started := b.snapshot, make(chan struct{})
			b.snapshot = func(
				ctx context.Context, from uint64, header []byte, next func() ([]byte, error),
			) error {
				close(started)
				return inner(ctx, from, header, next)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			err := a.sendSnapshot(ctx, []byte("h"), func() ([]byte, error) {
				if n++; n == 3 {
					want(t, started)
					if err := c.act(a, b, f, cancel); err != nil {
						return nil, err
					}
				}
				return make([]byte, 1<<10), nil // continues until the interruption
			})
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("the sender got %v, want %v", err, c.want)
			}
			if remote := new(remoteError); errors.As(err, &remote) {
				t.Errorf("a break is taken for an answer: %v", err)
			}
			if r := want(t, results); r.err == nil || errors.Is(r.err, io.EOF) {
				t.Errorf("the receiver got %v", r.err)
			}
		})
	}
}

// TestSnapshotSizes checks that an oversized header or chunk fails without being sent. A chunk can
// be as large as a message.
func TestSnapshotSizes(t *testing.T) { virtual.Test(t, testSnapshotSizes) }

func testSnapshotSizes(t *testing.T) {
	a, b := pair(t, options{})
	results := collect(b, nil)
	if err := a.SendSnapshot(t.Context(), 2, make([]byte, maxHeader+1), chunks(0, 0)); err == nil {
		t.Error("a header above the limit was sent")
	}
	if err := a.sendSnapshot(t.Context(), nil, chunks(1, MaxMessage)); err != nil {
		t.Error(err)
	}
	if r := want(t, results); r.bytes != MaxMessage {
		t.Errorf("%d bytes arrived", r.bytes)
	}
	if err := a.SendSnapshot(t.Context(), 2, nil, chunks(1, MaxMessage+1)); err == nil {
		t.Error("a chunk above the limit was sent")
	}
	if r := want(t, results); errors.Is(r.err, io.EOF) {
		t.Error("the receiver took the break for the end")
	}
}
