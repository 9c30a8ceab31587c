package listen

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// GRPC returns a handler for h, a gRPC server that has [Requests.Options] and is called by an HTTP
// server. In that setup, gRPC would buffer everything that arrives. The handler therefore reads
// bodies only as fast as calls consume them.
func (all *Requests) GRPC(h *grpc.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(loginOf(r))
		defer cancel(nil)
		b := all.body(w, r, cancel)
		defer b.Done()
		b.in = b.sender.open(ctx)
		if err := b.sender.wait(b.in); b.in.refused == nil {
			b.in.refused = err
		}
		b.in.room = make(chan struct{}, 1)
		r = r.WithContext(b.in)
		r.Body = b
		h.ServeHTTP(w, r)
	})
}

// loginOf returns a request's context together with the credential of its caller.
func loginOf(r *http.Request) context.Context {
	md := metadata.MD{}
	for _, name := range [...]string{"token", "authorization"} {
		if values := r.Header.Values(name); len(values) > 0 {
			md[name] = values
		}
	}
	return metadata.NewIncomingContext(r.Context(), md)
}

// A Body is the body of an HTTP request. It accounts for the bytes read from it.
type Body struct {
	io.ReadCloser
	sender *sender
	in     *incoming
	once   sync.Once
	shut   chan struct{}

	control *http.ResponseController
	mu      sync.Mutex // guards over
	over    bool       // the handler is about to return
}

// Body returns the body of a request for the JSON gateway, which has its own timeout. If requests
// take too much memory, end is called and the body ends. A request can be rejected like a
// stranger's call.
func (all *Requests) Body(
	w http.ResponseWriter, r *http.Request, end func(why error),
) (*Body, error) {
	b := all.body(w, r, end)
	b.in = &incoming{sender: b.sender, Context: r.Context()}
	b.sender.calls[0] = b.in
	if err := b.enter(r, false); err != nil {
		b.Done()
		return nil, err
	}
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		v.sender.Store(b.sender)
	}
	return b, nil
}

// enter waits until the request can be served, or rejects it.
func (b *Body) enter(r *http.Request, page bool) error {
	s := b.sender
	if err := s.admit(loginOf(r)); err != nil {
		return err
	}
	if page {
		s.opens, s.resets = 0, s.opens // counts only against the client's site
	}
	return s.wait(r.Context())
}

// Handler returns a handler for the page h. A stranger can have as many page requests in progress
// as calls. A flood from other sites does not delay a page, because it is cheap and might be a
// health probe.
func (all *Requests) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		var b *Body
		b = all.body(w, r, func(why error) {
			cancel(why)
			b.interrupt(b.control.SetWriteDeadline) // the client might not be reading
		})
		defer b.Done()
		if err := b.enter(r, true); err != nil {
			http.Error(w, status.Convert(err).Message(), http.StatusTooManyRequests)
			return
		}
		h.ServeHTTP(endingWriter{w, b}, r.WithContext(ctx))
	})
}

// endingWriter is the response of a page. It ends when its request must end.
type endingWriter struct {
	http.ResponseWriter
	body *Body
}

// Write implements http.ResponseWriter.
func (w endingWriter) Write(p []byte) (int, error) {
	select {
	case <-w.body.sender.done:
		return 0, errFlood
	default:
		return w.ResponseWriter.Write(p)
	}
}

// Unwrap is used by http.ResponseController.
func (w endingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (all *Requests) body(w http.ResponseWriter, r *http.Request, end func(error)) *Body {
	b := &Body{
		ReadCloser: r.Body, control: http.NewResponseController(w), shut: make(chan struct{}),
	}
	b.sender = all.sender(r.RemoteAddr, func(why error) {
		end(why)
		b.Interrupt()
	})
	if c := countedOf(r.Context()); c != nil && c.isKnown.Load() {
		b.sender.known.Store(true) // the caller logged in with an earlier request
	}
	return b
}

// Interrupt wakes a goroutine that is reading the body. It does nothing if the handler has
// returned, because the response writer must not be used then, and the connection might carry
// another request.
func (b *Body) Interrupt() { b.interrupt(b.control.SetReadDeadline) }

func (b *Body) interrupt(setDeadline func(time.Time) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = setDeadline(time.Unix(1, 0)) // a time in the past
	}
}

// Taken records that a message has been read completely. rest is the number of bytes read beyond
// it.
func (b *Body) Taken(rest int) {
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	cost := frameCost(rest)
	b.sender.addLocked(cost - b.in.begun)
	b.in.begun = cost
}

// Done closes the account. It must be called before the handler returns.
func (b *Body) Done() {
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
	b.sender.close()
}

// Close implements io.Closer.
func (b *Body) Close() error {
	b.once.Do(func() { close(b.shut) })
	return b.ReadCloser.Close()
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	if err := b.sender.wait(b.in); err != nil {
		return 0, err
	}
	if err := b.wait(b.in); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if n == 0 {
		return n, err
	}
	if why := b.sender.frame(b.in.stream, n, nil); why != nil {
		return 0, why
	}
	if b.in.room != nil {
		b.sender.data(b.in.stream, p[:n])
	}
	return n, err
}

// wait waits until the call has consumed messages if many of them are waiting.
func (b *Body) wait(ctx context.Context) error {
	for b.in.room != nil {
		b.sender.mu.Lock()
		full := b.in.whole > 0 && b.in.cost > bodyRoom
		b.sender.mu.Unlock()
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
