package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// fragile is a codec that panics on the messages "encode" and "decode".
type fragile struct{ encoding.CodecV2 }

func (c fragile) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*wrapperspb.StringValue); ok && m.Value == "encode" {
		panic("cannot encode")
	}
	return c.CodecV2.Marshal(v)
}

func (c fragile) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if m, ok := v.(*wrapperspb.StringValue); ok && m.Value == "decode" {
		panic("cannot decode")
	}
	return err
}

// TestPanics checks that a call that panics ends with an error, is counted, and is logged with its
// stack. Later calls are served.
func TestPanics(t *testing.T) {
	var log strings.Builder
	p := NewPanics(slog.New(slog.NewTextHandler(&log, nil)))
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(p.Codec(fragile{encoding.GetCodecV2("proto")})),
		grpc.ChainUnaryInterceptor(p.Unary), grpc.ChainStreamInterceptor(p.Stream))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "One", Handler: func(
			srv any, ctx context.Context, dec func(any) error, outer grpc.UnaryServerInterceptor,
		) (any, error) {
			m := new(wrapperspb.StringValue)
			if err := dec(m); err != nil {
				return nil, err
			}
			return outer(ctx, m, &grpc.UnaryServerInfo{FullMethod: "/echo/One"}, echoed)
		}}},
		Streams: []grpc.StreamDesc{{
			StreamName: "All", ClientStreams: true, ServerStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				m := new(wrapperspb.StringValue)
				if err := s.RecvMsg(m); err != nil {
					return err
				}
				answer, err := echoed(s.Context(), m)
				return errors.Join(err, s.SendMsg(answer))
			},
		}},
	}, nil)
	l := bufconn.Listen(1 << 16)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:echo",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"decode", "encode", "handle"} {
		m := wrapperspb.String(text)
		err := conn.Invoke(t.Context(), "/echo/One", m, new(wrapperspb.StringValue))
		if status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", text, err)
		}
		if err := callStream(t, conn, m); status.Code(err) != codes.Internal {
			t.Errorf("%s in a stream: %v", text, err)
		}
		if n := p.Ended(); n != 2*uint64(i+1) {
			t.Errorf("%s: %d panics", text, n)
		}
		good := wrapperspb.String("good")
		if err := conn.Invoke(t.Context(), "/echo/One", good, new(wrapperspb.StringValue)); err != nil {
			t.Errorf("after %s: %v", text, err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, want := range []string{"cannot handle", "echoed"} {
		if got := log.String(); !strings.Contains(got, want) {
			t.Errorf("the log does not say %q: %s", want, got)
		}
	}
}

// echoed returns the request as the response.
func echoed(_ context.Context, m any) (any, error) {
	if m.(*wrapperspb.StringValue).Value == "handle" {
		panic("cannot handle")
	}
	return m, nil
}

func callStream(t *testing.T, conn *grpc.ClientConn, m any) error {
	t.Helper()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	c, err := conn.NewStream(t.Context(), desc, "/echo/All")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SendMsg(m); err != nil {
		t.Fatal(err)
	}
	return c.RecvMsg(new(wrapperspb.StringValue))
}

// TestPanicsHTTP checks that a request that panics is counted and its connection is closed. A
// handler that aborts its connection does not count as a panic.
func TestPanicsHTTP(t *testing.T) {
	p := NewPanics(slog.New(slog.DiscardHandler))
	for i, v := range []any{http.ErrAbortHandler, "cannot"} {
		s := httptest.NewServer(p.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(v)
		})))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%v: answer %v", v, resp.Status)
		}
		s.Close()
		if n := p.Ended(); n != uint64(i) {
			t.Errorf("%v: %d panics", v, n)
		}
	}
}
