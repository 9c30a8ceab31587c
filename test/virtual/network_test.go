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

// twoMachines contains two machines on their own network, and both ends of a connection between
// them.
type twoMachines struct {
	*testing.T
	net         *Network
	a, b        *Machine
	here, there net.Conn
	port        net.Listener // on b
}

func runTwo(t *testing.T, f func(*twoMachines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &twoMachines{T: t, net: NewNetwork(Conditions{Delay: time.Millisecond}, nil, nil)}
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

func (w *twoMachines) write(text string) {
	w.Helper()
	if _, err := w.here.Write([]byte(text)); err != nil {
		w.Fatalf("write %q: %v", text, err)
	}
}

// read reads on b and waits for at most a second.
func (w *twoMachines) read(want string, wantErr error) {
	w.Helper()
	_ = w.there.SetReadDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 64)
	n, err := w.there.Read(buf)
	if string(buf[:n]) != want || !errors.Is(err, wantErr) {
		w.Errorf("read %q, %v; want %q, %v", buf[:n], err, want, wantErr)
	}
}

// TestDeadProcessSendsNothing checks that data written by a process after it was killed does not
// arrive, even if its peers have not detected its death. Data written earlier still arrives.
func TestDeadProcessSendsNothing(t *testing.T) {
	runTwo(t, func(w *twoMachines) {
		w.write("before")
		w.a.Kill(true)
		if _, err := w.here.Write([]byte(", after")); err == nil {
			t.Error("a dead process could write")
		}
		_ = w.here.Close() // closing does not send anything either
		w.read("before", nil)
		w.read("", os.ErrDeadlineExceeded)
		w.b.Kill(true)
		w.read("", net.ErrClosed)
		if len(w.net.pairs) > 0 {
			t.Errorf("%d connections left when both are dead, want none", len(w.net.pairs))
		}
	})
}

// TestDeadProcessCannotConnect checks that a process killed while it is dialing gets no connection.
// Over that connection, it could acknowledge writes that are not on the disk it left behind.
func TestDeadProcessCannotConnect(t *testing.T) {
	runTwo(t, func(w *twoMachines) {
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

// TestFaults checks that data on a cut path arrives once the path is restored, even if only one
// direction was cut. It also checks that delays are measured from the time of sending, and that a
// stopped process reads nothing.
func TestFaults(t *testing.T) {
	runTwo(t, func(w *twoMachines) {
		w.net.Set(w.a, w.b, &Conditions{Cut: true})
		w.write("cut")
		w.read("", os.ErrDeadlineExceeded)
		if _, err := w.there.Write([]byte("back")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4)
		if _, err := io.ReadFull(w.here, buf); err != nil || string(buf) != "back" {
			t.Errorf("the other direction: read %q, %v; want \"back\"", buf, err)
		}
		w.net.Set(w.a, w.b, nil)
		w.read("cut", nil)

		w.net.Set(w.a, w.b, &Conditions{Delay: 1500 * time.Millisecond})
		w.write("late")
		w.read("", os.ErrDeadlineExceeded)
		w.read("late", nil)
		w.net.Set(w.a, w.b, nil)

		w.write("stopped")
		w.b.Stop()
		time.AfterFunc(time.Minute, w.b.Resume)
		began := time.Now()
		w.read("stopped", nil)
		if d := time.Since(began); d != time.Minute {
			t.Errorf("a process stopped for a minute read after %v", d)
		}
	})
}

// TestEnds checks that a closed connection delivers the data written before the close, and that a
// killed process resets its connections.
func TestEnds(t *testing.T) {
	runTwo(t, func(w *twoMachines) {
		w.write("last")
		_ = w.here.Close()
		w.read("last", nil)
		w.read("", io.EOF)
	})
	runTwo(t, func(w *twoMachines) {
		w.a.Kill(false)
		w.read("", syscall.ECONNRESET)
		_ = w.port.Close()
		if _, err := w.net.Machine("c").Dial(w.Context(), "", "10.0.0.2:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to a closed port: %v, want %v", err, syscall.ECONNREFUSED)
		}
	})
}

// TestDialRetries checks that a dial succeeds if the path is restored or the listener accepts a
// connection within a second, and fails otherwise.
func TestDialRetries(t *testing.T) {
	runTwo(t, func(w *twoMachines) {
		dial := func() error {
			c, err := w.a.Dial(w.Context(), "tcp", "10.0.0.2:80")
			if err == nil {
				defer c.Close()
			}
			return err
		}
		w.net.Set(w.b, w.a, &Conditions{Cut: true})
		if err := dial(); !errors.Is(err, syscall.ETIMEDOUT) {
			w.Errorf("dial on a cut path: %v, want %v", err, syscall.ETIMEDOUT)
		}
		time.AfterFunc(time.Second/2, func() { w.net.Set(w.b, w.a, nil) })
		if err := dial(); err != nil {
			w.Errorf("dial on a path that was restored: %v", err)
		}

		for range cap(w.port.(*listener).in) - 1 {
			if err := dial(); err != nil {
				w.Fatal(err)
			}
		}
		if err := dial(); !errors.Is(err, syscall.ETIMEDOUT) {
			w.Errorf("dial to a full listener: %v, want %v", err, syscall.ETIMEDOUT)
		}
		time.AfterFunc(time.Second/2, func() { _, _ = w.port.Accept() })
		if err := dial(); err != nil {
			w.Errorf("dial to a listener that accepted a connection: %v", err)
		}
	})
}
