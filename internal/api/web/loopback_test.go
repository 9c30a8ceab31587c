package web

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestLoopbackKeepsLittle checks that little memory is used for responses that the gateway does not
// read, no matter how much it has read before.
func TestLoopbackKeepsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, read = 64 << 10, 400
		loop, conn, err := Loopback()
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		gs := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			for {
				if err := s.SendMsg(wrapperspb.Bytes(make([]byte, size))); err != nil {
					return err
				}
				sent++
			}
		}))
		go func() { _ = gs.Serve(loop) }()
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/s/m")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for range read {
			if err := s.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if kept := (sent - read) * size; kept > 1<<20 {
			t.Errorf("%d bytes are not read", kept)
		}
		_ = conn.Close()
		gs.Stop()
	})
}
