package listen

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"

	"leasehold.dev/test/certs"
)

// TestHandshakesTakeTurns checks that only a limited number of TLS handshakes can run their
// CPU-intensive part at a time. A handshake that waits for its client does not hold a slot.
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
		var waiting []net.Conn
		for range 3 {
			silent := l.dial()
			if _, err := silent.Write([]byte{0x16, 3, 1}); err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, silent)
		}
		mute := &neverReads{l.dial(), make(chan struct{})}
		go tls.Client(mute, &tls.Config{InsecureSkipVerify: true}).Handshake() //nolint:errcheck // it fails
		if synctest.Wait(); len(m.handshakes) > 0 {
			t.Error("a handshake that waits for its client has a turn")
		}
		for _, c := range append(waiting, mute) {
			_ = c.Close()
		}
		synctest.Wait()
		m.handshakes <- struct{}{} // the slot of another handshake that is computing
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
		for held := range 2 { // the connection no longer takes or releases a slot
			go c.Write([]byte("x")) //nolint:errcheck // read below
			if _, err := served.Read(make([]byte, 1)); err != nil || len(m.handshakes) != held {
				t.Errorf("%d turns are held, want %d, %v", len(m.handshakes), held, err)
			}
			if held == 0 {
				m.handshakes <- struct{}{} // held by another handshake
			}
		}
		<-m.handshakes
		_ = served.Close()
		_ = c.Close()
	})
}

// neverReads is a client that does not read anything before it is closed.
type neverReads struct {
	net.Conn
	closed chan struct{}
}

// Read implements net.Conn.
func (c *neverReads) Read([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}

// Close implements net.Conn.
func (c *neverReads) Close() error {
	close(c.closed)
	return c.Conn.Close()
}
