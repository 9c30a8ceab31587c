package intercept

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
)

// steps records what happened, in order.
type steps []string

func (s *steps) add(format string, args ...any) { *s = append(*s, fmt.Sprintf(format, args...)) }

func (s *steps) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(*s, want) {
		t.Errorf("happened: %q, want %q", *s, want)
	}
	*s = nil
}

// named wraps a stream and gives it a name.
type named struct {
	grpc.ServerStream
	name string
}

func nameOf(s grpc.ServerStream) string {
	n, ok := s.(named)
	if !ok {
		return ""
	}
	return nameOf(n.ServerStream) + n.name
}

// by returns an interceptor that records the calls of its two halves and adds its name to errors.
// It rejects all streams if refusal is not nil.
func (s *steps) by(name string, refusal error) Stream {
	return func(g grpc.ServerStream, info *grpc.StreamServerInfo) (grpc.ServerStream, Leave, error) {
		s.add("%s of %s", name, info.FullMethod)
		if refusal != nil {
			return nil, nil, refusal
		}
		return named{g, name}, func(err error) error {
			s.add("left %s: %v", name, err)
			return fmt.Errorf("%s: %w", name, err)
		}, nil
	}
}

// silent is an interceptor whose second half does nothing.
func silent(g grpc.ServerStream, _ *grpc.StreamServerInfo) (grpc.ServerStream, Leave, error) {
	return named{g, "-"}, nil, nil
}

var (
	errInner = errors.New("inner")
	info     = &grpc.StreamServerInfo{FullMethod: "m"}
)

// TestOrder checks that the first halves of interceptors are called in order and the second halves
// in reverse order, in a single chain and in nested gRPC interceptors. If an interceptor rejects a
// stream, only those before it are called.
func TestOrder(t *testing.T) {
	var s steps
	handler := func(srv any, g grpc.ServerStream) error {
		s.add("handler of %v on %s", srv, nameOf(g))
		return errInner
	}
	inHalves := func(list ...Stream) grpc.StreamServerInterceptor { return Chain(list...).Whole() }
	whole := func(list ...Stream) grpc.StreamServerInterceptor {
		next := func(
			srv any, g grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler,
		) error {
			return h(srv, g)
		}
		for _, w := range slices.Backward(Wholes(list)) {
			inner := next
			next = func(
				srv any, g grpc.ServerStream, i *grpc.StreamServerInfo, h grpc.StreamHandler,
			) error {
				return w(srv, g, i, func(srv any, g grpc.ServerStream) error { return inner(srv, g, i, h) })
			}
		}
		return next
	}
	for _, made := range []func(...Stream) grpc.StreamServerInterceptor{inHalves, whole} {
		err := made(s.by("a", nil), silent, s.by("b", nil))(1, nil, info, handler)
		if !errors.Is(err, errInner) || err.Error() != "a: b: inner" {
			t.Errorf("the error is %v", err)
		}
		s.want(t, "a of m", "b of m", "handler of 1 on a-b", "left b: inner", "left a: b: inner")
		err = made(s.by("a", nil), s.by("b", errInner), s.by("c", nil))(1, nil, info, handler)
		if !errors.Is(err, errInner) || err.Error() != "a: inner" {
			t.Errorf("the refusal is %v", err)
		}
		s.want(t, "a of m", "b of m", "left a: inner")
	}
}

// TestLeftAtPanic checks that the second halves run even if the handler panics.
func TestLeftAtPanic(t *testing.T) {
	var s steps
	whole := s.by("a", nil).Whole()
	func() {
		defer func() { _ = recover() }()
		_ = whole(nil, nil, info, func(any, grpc.ServerStream) error { panic("no") })
	}()
	s.want(t, "a of m", "left a: <nil>")
}

// fake is a service with one stream whose behavior the test chooses. It panics instead of returning
// errPanic.
type fake struct {
	steps  *steps
	begin  error
	serves []error // what each call of Serve returns; errPaused makes it pause
	end    error
	resume func()
}

var (
	errPaused = errors.New("paused")
	errPanic  = errors.New("panic")
)

func (f *fake) Begin(g grpc.ServerStream, resume func()) (Session, error) {
	f.steps.add("begun on %s", nameOf(g))
	f.resume = resume
	return f, f.orPanic(f.begin)
}

func (f *fake) Serve() (paused bool, err error) {
	f.steps.add("served")
	err, f.serves = f.serves[0], f.serves[1:]
	if errors.Is(err, errPaused) {
		return true, nil
	}
	return false, f.orPanic(err)
}

func (f *fake) End(err error) error {
	f.steps.add("ended: %v", err)
	return errors.Join(err, f.orPanic(f.end))
}

func (f *fake) orPanic(err error) error {
	if errors.Is(err, errPanic) {
		panic(err)
	}
	return err
}

// guard turns panics into errors.
type guard struct{}

func (guard) End(what string, err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%s: %v", what, v)
	}
}

// TestCall checks that a stream begins once, even if it pauses, and ends once unless Begin failed.
// This holds whether Begin or Serve returns an error, or whether Begin, Serve or End panics. The
// surrounding interceptors are notified only when the stream is over.
func TestCall(t *testing.T) {
	for name, x := range map[string]struct {
		f    fake
		want []string // steps after "a of m" and "begun on a"
	}{
		"a pause": {
			fake{serves: []error{errPaused, errPaused, errInner}},
			[]string{"served", "served", "served", "ended: inner", "left a: inner"},
		},
		"no pause": {
			fake{serves: []error{nil}}, []string{"served", "ended: <nil>", "left a: <nil>"},
		},
		"a refusal":                {fake{begin: errInner}, []string{"left a: inner"}},
		"a panic at the beginning": {fake{begin: errPanic}, []string{"left a: m: panic"}},
		"a panic": {
			fake{serves: []error{errPaused, errPanic}},
			[]string{"served", "served", "ended: m: panic", "left a: m: panic"},
		},
		"a panic at the end": {
			fake{serves: []error{errInner}, end: errPanic},
			[]string{"served", "ended: inner", "left a: m: panic"},
		},
	} {
		var s steps
		f := x.f
		f.steps = &s
		m := &Method{
			Info: info, Service: &f, Around: s.by("a", nil), Panics: guard{},
			Handler: func(any, grpc.ServerStream) error { panic("a service is begun") },
		}
		resumed := 0
		c, err := m.Begin(nil, func() { resumed++ })
		if err != nil {
			t.Fatal(err)
		}
		for paused := true; paused; {
			if paused, err = c.Serve(); paused && err != nil {
				t.Errorf("%s: paused with %v", name, err)
			}
		}
		s.want(t, append([]string{"a of m", "begun on a"}, x.want...)...)
		if f.resume(); resumed != 1 {
			t.Errorf("%s: resumed %d times", name, resumed)
		}
	}
}

// TestCallOfHandler checks that if a method is not a Service, its handler is called, and that the
// handler's panics become errors as well.
func TestCallOfHandler(t *testing.T) {
	var s steps
	for want, h := range map[string]grpc.StreamHandler{
		"left a: inner": func(any, grpc.ServerStream) error { return errInner },
		"left a: m: no": func(any, grpc.ServerStream) error { panic("no") },
	} {
		m := &Method{Info: info, Handler: h, Around: s.by("a", nil), Panics: guard{}}
		c, err := m.Begin(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if paused, err := c.Serve(); paused || err == nil {
			t.Errorf("paused %v, %v", paused, err)
		}
		s.want(t, "a of m", want)
	}
	m := &Method{Info: info, Around: s.by("a", errInner)}
	if c, err := m.Begin(nil, nil); c != nil || !errors.Is(err, errInner) {
		t.Errorf("a refused call: %v, %v", c, err)
	}
}
