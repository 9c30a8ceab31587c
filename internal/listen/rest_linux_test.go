package listen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"

	"leasehold.dev/internal/direct"
	"leasehold.dev/test/certs"
)

// woken is told when a stream rests no more.
type woken chan struct{}

// Next implements direct.Sleeper.
func (w woken) Next(bool) { close(w) }

// Answer implements direct.Sleeper.
func (woken) Answer(bool) {}

// Goal: a stream of a connection from a listener can rest, over TLS, too, and learns that its
// connection was closed to make room for another.
func TestRestOfStrangers(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted=%t", encrypted), func(t *testing.T) { restOfStranger(t, encrypted) })
	}
}

func restOfStranger(t *testing.T, encrypted bool) {
	a := certs.New(t)
	var far, near *tls.Config
	if encrypted {
		opts, err := serverOf(a), error(nil)
		if far, err = opts.Server(); err != nil {
			t.Fatal(err)
		}
		near = a.Client()
		near.NextProtos, near.ServerName = []string{direct.Protocol}, "localhost"
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limit := NewLimit(1, "", slog.New(slog.DiscardHandler))
	limit.CloseStrangers(time.Hour)
	m := NewMux(MuxOptions{Direct: true})
	codec := encoding.GetCodecV2("proto")
	server := direct.NewServer(direct.Options{
		Credentials: Credentials(nil, nil), Codec: codec, Patience: time.Minute,
	})
	rested, end := make(chan bool, 1), make(woken)
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "test", Streams: []grpc.StreamDesc{{
		StreamName: "Rest", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, g grpc.ServerStream) error {
			rested <- direct.RestOf(g.Context()).Begin(end)
			<-end
			return nil
		},
	}}}, nil)
	ended := make(chan error, 2)
	go func() { ended <- m.Serve(limit.Listener(inner), far) }()
	go func() { ended <- server.Serve(m.Direct()) }()
	t.Cleanup(func() {
		_ = m.Close()
		server.Stop()
		server.GracefulStop()
		if err := errors.Join(<-ended, <-ended); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if near != nil {
			c = tls.Client(c, near)
		}
		return c
	}
	if _, err := direct.Open(t.Context(), dial(), "/test/Rest", codec); err != nil {
		t.Fatal(err)
	}
	if !<-rested {
		t.Fatal("the stream cannot rest")
	}
	dial()
	<-end
}
