package virtual

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// two has two machines in a network of their own, and both ends of a connection between them.
type two struct {
	*testing.T
	net         *Network
	a, b        *Machine
	here, there net.Conn
	port        net.Listener // at b
}

func runTwo(t *testing.T, f func(*two)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &two{T: t, net: NewNetwork(Weather{Delay: time.Millisecond}, nil, nil)}
		w.a, w.b = w.net.Machine("a"), w.net.Machine("b")
		var err error
		if w.port, err = w.b.Listen(t.Context(), url.URL{Host: "10.0.0.2:80"}); err != nil {
			t.Fatal(err)
		}
		if w.here, err = w.a.Dial(t.Context(), "tcp", "10.0.0.2:80"); err != nil {
			t.Fatal(err)
		}
		if w.there, err = w.port.Accept(); err != nil {
			t.Fatal(err)
		}
		f(w)
	})
}

func (w *two) say(text string) {
	w.Helper()
	if _, err := w.here.Write([]byte(text)); err != nil {
		w.Fatalf("write %q: %v", text, err)
	}
}

// hear reads at b, for up to a second.
func (w *two) hear(want string, wantErr error) {
	w.Helper()
	_ = w.there.SetReadDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 64)
	n, err := w.there.Read(buf)
	if string(buf[:n]) != want || !errors.Is(err, wantErr) {
		w.Errorf("read %q, %v; want %q, %v", buf[:n], err, want, wantErr)
	}
}

// Data that a process writes after it was killed does not arrive, even if its peers do not notice
// its death. Earlier data arrives.
func TestDeadSayNothing(t *testing.T) {
	runTwo(t, func(w *two) {
		w.say("before")
		w.a.Kill(true)
		if _, err := w.here.Write([]byte(", after")); err == nil {
			t.Error("a dead process could write")
		}
		_ = w.here.Close() // this sends nothing either
		w.hear("before", nil)
		w.hear("", os.ErrDeadlineExceeded)
		w.b.Kill(true)
		w.hear("", net.ErrClosed)
		if len(w.net.pairs) > 0 {
			t.Errorf("%d connections left when both are dead, want none", len(w.net.pairs))
		}
	})
}

// A killed process gets no connection that was being made when it died. Through it, the process
// could acknowledge writes that are not on the disk it left.
func TestDeadConnectNot(t *testing.T) {
	runTwo(t, func(w *two) {
		w.a.Kill(false)
		if c, _ := w.net.connect(w.a, "10.0.0.2:80"); c != nil {
			t.Error("a dead process could connect")
		}
		w.b.Kill(false)
		if c, _ := w.net.connect(w.net.Machine("c"), "10.0.0.2:80"); c != nil {
			t.Error("a connection to a dead process was made")
		}
	})
}

// Data on a cut path arrives when the cut ends, also if only one direction is cut. Delays count
// from sending, and a stopped process reads nothing.
func TestFaults(t *testing.T) {
	runTwo(t, func(w *two) {
		w.net.Set(w.a, w.b, &Weather{Cut: true})
		w.say("cut")
		w.hear("", os.ErrDeadlineExceeded)
		if _, err := w.there.Write([]byte("back")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4)
		if _, err := io.ReadFull(w.here, buf); err != nil || string(buf) != "back" {
			t.Errorf("the other direction: read %q, %v; want \"back\"", buf, err)
		}
		w.net.Set(w.a, w.b, nil)
		w.hear("cut", nil)

		w.net.Set(w.a, w.b, &Weather{Delay: 1500 * time.Millisecond})
		w.say("late")
		w.hear("", os.ErrDeadlineExceeded)
		w.hear("late", nil)
		w.net.Set(w.a, w.b, nil)

		w.say("stopped")
		w.b.Stop()
		time.AfterFunc(time.Minute, w.b.Resume)
		began := time.Now()
		w.hear("stopped", nil)
		if d := time.Since(began); d != time.Minute {
			t.Errorf("a process stopped for a minute read after %v", d)
		}
	})
}

// A closed connection ends after the data written before. A killed process resets its connections.
func TestEnds(t *testing.T) {
	runTwo(t, func(w *two) {
		w.say("last")
		_ = w.here.Close()
		w.hear("last", nil)
		w.hear("", io.EOF)
	})
	runTwo(t, func(w *two) {
		w.a.Kill(false)
		w.hear("", syscall.ECONNRESET)
		_ = w.port.Close()
		if _, err := w.net.Machine("c").Dial(w.Context(), "", "10.0.0.2:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to a closed port: %v, want %v", err, syscall.ECONNREFUSED)
		}
	})
}
