// Package intercept splits the interceptor of a stream into two halves: one runs before the handler
// is called, and one after the stream has ended.
//
// A grpc.StreamServerInterceptor calls the handler. So a stream needs a goroutine that remains in
// all of its interceptors until it ends, and its stack is most of the cost of an idle client. With
// halves, an idle stream needs no goroutine: see [Service].
package intercept

import (
	"slices"

	"google.golang.org/grpc"
)

// Stream is the first half of a [grpc.StreamServerInterceptor]. It returns the stream for the
// handler, and the second half, which may be nil. After an error the handler is not called.
type Stream func(
	s grpc.ServerStream, info *grpc.StreamServerInfo,
) (inner grpc.ServerStream, leave Leave, err error)

// Leave is the second half. It is called once, with the error of the handler, and returns the error
// for the outer interceptor.
type Leave func(error) error

// Whole joins the two halves.
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

// Around wraps a handler. The two halves get no StreamServerInfo.
func (i Stream) Around(next grpc.StreamHandler) grpc.StreamHandler {
	whole := i.Whole()
	return func(srv any, s grpc.ServerStream) error { return whole(srv, s, nil, next) }
}

// Wholes joins the halves of each.
func Wholes(list []Stream) []grpc.StreamServerInterceptor {
	out := make([]grpc.StreamServerInterceptor, len(list))
	for i, s := range list {
		out[i] = s.Whole()
	}
	return out
}

// Chain combines several into one; the first is the outermost.
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

// Service is a service whose idle streams need no goroutine.
type Service interface {
	// Begin begins a stream. It calls resume, from any goroutine, when a paused stream has
	// something to do: its Serve is then called again soon. resume does not block.
	Begin(s grpc.ServerStream, resume func()) (Session, error)
}

// Session is a stream of a [Service]. Its methods are called by one goroutine at a time.
type Session interface {
	// Serve serves the stream until it ends or is idle, and returns true if it is idle. It may
	// already have been resumed by then.
	Serve() (paused bool, err error)
	// End is called when the stream has ended, and returns the error for the client.
	End(err error) error
}

// Panics turns panics into errors. End must be deferred; what names the call.
type Panics interface {
	End(what string, err *error)
}

// Method is a streaming method.
type Method struct {
	Info    *grpc.StreamServerInfo
	Handler grpc.StreamHandler
	// Service is passed to the handler. If it is a [Service], the handler is not called.
	Service any
	Around  Stream
	Panics  Panics // nil: a panic ends the process
}

// Call is a stream of a method.
type Call struct {
	method  *Method
	stream  grpc.ServerStream
	leave   Leave
	resume  func()
	session Session // nil before the first Serve
}

// Begin begins a call; see [Service] for resume. After an error the call has ended.
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
