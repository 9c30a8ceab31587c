package listen

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// bodyRoom is what is read of a body whose call has messages to take.
const bodyRoom = 1 << 20

// GRPC returns h, a server with [Requests.Options] that is called by one of HTTP, whose requests
// have accounts here. gRPC then keeps all that has arrived, so here bodies are read only as calls
// take what is in them.
func (all *Requests) GRPC(h *grpc.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := all.Body(w, r, func(error) {})
		defer b.Done()
		b.in.room = make(chan struct{}, 1)
		r = r.WithContext(b.in.ctx)
		r.Body = b
		h.ServeHTTP(w, r)
	})
}

// A Body is that of a request of HTTP, with an account of what is read of it.
type Body struct {
	io.ReadCloser
	in   *incoming
	once sync.Once
	shut chan struct{}
}

// Body returns the body of a request. If too much of requests is kept, end is called, and
// the body ends.
func (all *Requests) Body(w http.ResponseWriter, r *http.Request, end func(why error)) *Body {
	control := http.NewResponseController(w)
	s := all.sender(r.RemoteAddr, func(why error) {
		end(why)
		_ = control.SetReadDeadline(time.Unix(1, 0)) // in the past: wakes the reader
	})
	s.looking = true // there is no need to: who calls this has a time limit of its own
	ctx := s.open(r.Context())
	b := &Body{ReadCloser: r.Body, in: requestOf(ctx), shut: make(chan struct{})}
	return b
}

// Taken says that a message was read, to its end, and so many bytes behind it.
func (b *Body) Taken(rest int) {
	s := b.in.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	cost := frameCost(rest)
	s.addLocked(cost - b.in.begun)
	b.in.begun = cost
}

// Done ends the account.
func (b *Body) Done() { b.in.sender.close() }

// Close implements io.Closer.
func (b *Body) Close() error {
	b.once.Do(func() { close(b.shut) })
	return b.ReadCloser.Close()
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	if err := b.wait(b.in.ctx); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if n == 0 {
		return n, err
	}
	s := b.in.sender
	if why := s.frame(b.in.stream, n); why != nil {
		return 0, why
	}
	if b.in.room != nil {
		s.data(b.in.stream, p[:n])
	}
	return n, err
}

// wait waits until the call has taken messages, if it has many to take.
func (b *Body) wait(ctx context.Context) error {
	for b.in.room != nil {
		b.in.sender.mu.Lock()
		full := b.in.whole > 0 && b.in.cost > bodyRoom
		b.in.sender.mu.Unlock()
		if !full {
			break
		}
		select {
		case <-b.in.room:
		case <-b.shut:
			return http.ErrBodyReadAfterClose
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
