package listen

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// errPanicked is the error returned to callers.
var errPanicked = status.Error(codes.Internal,
	"leasehold: the request hit a bug in the server; see its log")

// Panics recovers calls that panic, so that no request can end the process. It counts each panic
// and logs it with its stack. It is for code that serves calls, and not for the core: after a panic
// in the core, the state might be wrong.
//
// A nil Panics recovers nothing. It is safe for concurrent use.
type Panics struct {
	log   *slog.Logger
	ended atomic.Uint64
}

// NewPanics returns a Panics that logs to log.
func NewPanics(log *slog.Logger) *Panics { return &Panics{log: log} }

// Ended returns the number of panics.
func (p *Panics) Ended() uint64 { return p.ended.Load() }

// End recovers a panic and stores it in *err. It must be deferred.
func (p *Panics) End(what string, err *error) {
	if p == nil {
		return
	}
	if v := recover(); v != nil {
		p.note(what, v)
		*err = errPanicked
	}
}

func (p *Panics) note(what string, v any) {
	p.ended.Add(1)
	p.log.Error("a call panicked and was aborted: please report this",
		"call", what, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
}

// Unary is a grpc.UnaryServerInterceptor.
func (p *Panics) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (_ any, err error) {
	defer p.End(info.FullMethod, &err)
	return next(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor.
func (p *Panics) Stream(
	srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	defer p.End(info.FullMethod, &err)
	return next(srv, s)
}

// Codec returns a codec that works like c and recovers panics. It is needed because gRPC uses the
// codec outside of interceptors.
func (p *Panics) Codec(c encoding.CodecV2) encoding.CodecV2 { return guardedCodec{c, p} }

type guardedCodec struct {
	encoding.CodecV2
	panics *Panics
}

// Marshal implements encoding.CodecV2.
func (c guardedCodec) Marshal(v any) (_ mem.BufferSlice, err error) {
	defer c.panics.End("encode", &err)
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c guardedCodec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	defer c.panics.End("decode", &err)
	return c.CodecV2.Unmarshal(data, v)
}

// Handler returns a handler that calls h and recovers panics. If a request panics, its connection
// is closed.
func (p *Panics) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v != http.ErrAbortHandler { //nolint:errorlint // never wrapped
				p.note(r.URL.Path, v)
			}
			panic(http.ErrAbortHandler) // only closes the connection
		}()
		h.ServeHTTP(w, r)
	})
}
