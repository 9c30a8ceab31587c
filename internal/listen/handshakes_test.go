package listen

import (
	"crypto/tls"
	"testing"
	"testing/synctest"

	"leasehold.dev/test/certs"
)

// TLS handshakes take turns at what costs CPU time. One whose client is silent has no turn.
func TestHandshakesTakeTurns(t *testing.T) {
	a := certs.New(t)
	conf, err := serverOf(a).Server()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m, l := NewMux(MuxOptions{}), newPipes()
		m.handshakes = make(chan struct{}, 1)
		go m.Serve(l, conf) //nolint:errcheck // the test ends it
		defer m.Close()     //nolint:errcheck // nothing is lost
		for range 3 {
			silent := l.dial()
			defer silent.Close() //nolint:errcheck // nothing is lost
			if _, err := silent.Write([]byte{0x16, 3, 1}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		m.handshakes <- struct{}{} // of another one that computes
		done := make(chan error, 1)
		c := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		go func() { done <- c.Handshake() }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("a handshake does not wait for its turn: %v", err)
		default:
		}
		<-m.handshakes
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		served, err := m.GRPC().Accept()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(m.handshakes); n != 0 {
			t.Errorf("%d handshakes have a turn", n)
		}
		m.handshakes <- struct{}{} // the connection needs no turn any more
		go c.Write([]byte("x"))    //nolint:errcheck // read below
		if _, err := served.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		<-m.handshakes
		_ = served.Close()
		_ = c.Close()
	})
}
