// Package intercept splits a stream interceptor into two halves: one runs before the handler, and
// the other after the stream has ended.
//
// A grpc.StreamServerInterceptor calls the handler. Therefore, a stream needs a goroutine that
// stays inside all interceptors until the stream ends. That goroutine's stack accounts for most of
// the cost of an idle client. With two halves, an idle stream does not need a goroutine; see
// [Service].
package intercept

import (
	"slices"

	"google.golang.org/grpc"
)

// Stream is the first half of a [grpc.StreamServerInterceptor]. It returns the stream to pass to
// the handler, and the second half, which may be nil. If it returns an error, the handler is not
// called.
type Stream func(
	s grpc.ServerStream, info *grpc.StreamServerInfo,
) (inner grpc.ServerStream, leave Leave, err error)

// Leave is the second half of an interceptor. It is called once with the handler's error. It
// returns the error to pass to the outer interceptor.
type Leave func(error) error

// Whole joins the two halves into one interceptor.
func (i Stream) Whole() grpc.StreamServerInterceptor {
	return func(
		srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
	) (err error) {
		inner, leave, err := i(s, info)
		if err != nil {
			return err
		}
		if leave != nil {
			defer func() { err = leave(err) }()
		}
		return next(srv, inner)
	}
}

// Around wraps a handler. The interceptor receives a nil StreamServerInfo.
func (i Stream) Around(next grpc.StreamHandler) grpc.StreamHandler {
	whole := i.Whole()
	return func(srv any, s grpc.ServerStream) error { return whole(srv, s, nil, next) }
}

// Wholes calls Whole on each Stream.
func Wholes(list []Stream) []grpc.StreamServerInterceptor {
	out := make([]grpc.StreamServerInterceptor, len(list))
	for i, s := range list {
		out[i] = s.Whole()
	}
	return out
}

// Chain combines several Streams into one. The first one is the outermost.
func Chain(list ...Stream) Stream {
	return func(
		s grpc.ServerStream, info *grpc.StreamServerInfo,
	) (grpc.ServerStream, Leave, error) {
		var all []Leave
		leave := func(err error) error {
			for _, l := range slices.Backward(all) {
				err = l(err)
			}
			return err
		}
		for _, i := range list {
			inner, l, err := i(s, info)
			if err != nil {
				return nil, nil, leave(err)
			}
			if l != nil {
				all = append(all, l)
			}
			s = inner
		}
		return s, leave, nil
	}
}

// Service is a service whose idle streams do not need a goroutine.
type Service interface {
	// Begin begins a stream. The service calls resume when a paused stream has something to do.
	// Serve is then called again soon. resume does not block and can be called from any goroutine.
	Begin(s grpc.ServerStream, resume func()) (Session, error)
}

// Session is a stream of a [Service]. Only one goroutine at a time calls its methods.
type Session interface {
	// Serve serves the stream until it ends or becomes idle. It returns true if the stream is idle.
	// By that time, the stream may already have been resumed.
	Serve() (paused bool, err error)
	// End is called when the stream has ended. It returns the error to send to the client.
	End(err error) error
}

// Panics converts panics to errors. End must be deferred. what identifies the call.
type Panics interface {
	End(what string, err *error)
}

// Method is a streaming method.
type Method struct {
	Info    *grpc.StreamServerInfo
	Handler grpc.StreamHandler
	// Service is passed to the handler. If it implements [Service], the handler is not called.
	Service any
	Around  Stream
	Panics  Panics // if nil, a panic ends the process
}

// Call is a call to a streaming method.
type Call struct {
	method  *Method
	stream  grpc.ServerStream
	leave   Leave
	resume  func()
	session Session // nil until the first Serve
}

// Begin begins a call. See [Service] for resume. If it returns an error, the call has ended.
func (m *Method) Begin(s grpc.ServerStream, resume func()) (*Call, error) {
	inner, leave, err := m.Around(s, m.Info)
	if err != nil {
		return nil, err
	}
	return &Call{method: m, stream: inner, leave: leave, resume: resume}, nil
}

// Serve serves the call until it ends or pauses.
func (c *Call) Serve() (paused bool, err error) {
	if paused, err = c.serve(); paused {
		return true, nil
	}
	if c.session != nil {
		err = c.end(err)
	}
	if c.leave == nil {
		return false, err
	}
	return false, c.leave(err)
}

func (c *Call) serve() (paused bool, err error) {
	m := c.method
	if m.Panics != nil {
		defer m.Panics.End(m.Info.FullMethod, &err)
	}
	if c.session == nil {
		s, ok := m.Service.(Service)
		if !ok {
			return false, m.Handler(m.Service, c.stream)
		}
		if c.session, err = s.Begin(c.stream, c.resume); err != nil {
			c.session = nil
			return false, err
		}
	}
	return c.session.Serve()
}

func (c *Call) end(why error) (err error) {
	if p := c.method.Panics; p != nil {
		defer p.End(c.method.Info.FullMethod, &err)
	}
	return c.session.End(why)
}
