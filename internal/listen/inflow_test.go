package listen

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
)

// bothEnds returns both bothEnds of a connection of TCP.
func bothEnds(t *testing.T) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if there, err = net.Dial("tcp", l.Addr().String()); err == nil {
		here, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

// Goal: what arrives is what is read, in whatever pieces, and then that the other side has ended.
// Method: bytes of no pattern go over each kind of connection, in pieces of all sizes, and are read
// in others. At the end nothing is held.
func TestInflowReadsAll(t *testing.T) {
	server, err := TLS{Auto: true}.SelfSigned(t.TempDir(), []string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	conf, err := server.Server()
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(t *testing.T) (here, there net.Conn){
		"TCP":            bothEnds,
		"inside":         func(*testing.T) (net.Conn, net.Conn) { return net.Pipe() },
		"counted by all": func(t *testing.T) (net.Conn, net.Conn) { return limitedEnds(t) },
		"TLS": func(t *testing.T) (net.Conn, net.Conn) {
			here, there := bothEnds(t)
			return tls.Server(here, conf), tls.Client(there, &tls.Config{InsecureSkipVerify: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := open(t)
			random := rand.New(rand.NewPCG(1, 2))
			size := func() int {
				return []int{1, 8, firstRead - 1, firstRead, firstRead + 1, readBuffer}[random.IntN(6)]
			}
			sent := make([]byte, 3*readBuffer+12345)
			for i := range sent {
				sent[i] = byte(random.Uint32())
			}
			sizes := make([]int, 2000)
			for i := range sizes {
				sizes[i] = size()
			}
			go func() {
				defer there.Close()
				for rest, i := sent, 0; len(rest) > 0; i++ {
					n := min(sizes[i%len(sizes)], len(rest))
					if _, err := there.Write(rest[:n]); err != nil {
						return // what was read tells
					}
					rest = rest[n:]
				}
			}()
			// Some of it was read before, by who looked which protocol it is.
			head := make([]byte, 10)
			if _, err := io.ReadFull(here, head); err != nil {
				t.Fatal(err)
			}
			f := newInflow(&replay{Conn: here, head: head})
			var got []byte
			for p := make([]byte, 2*readBuffer); ; {
				n, err := f.Read(p[:random.IntN(size()+1)])
				got = append(got, p[:n]...)
				if err == nil {
					continue
				}
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				break
			}
			if !bytes.Equal(got, sent) {
				t.Errorf("%d bytes were read, %d sent", len(got), len(sent))
			}
			if f.held != nil || f.rest != nil {
				t.Error("a buffer is held at the end")
			}
		})
	}
}

// limitedEnds is bothEnds with one that a limit counts.
func limitedEnds(t *testing.T) (here, there net.Conn) {
	here, there = bothEnds(t)
	return &counted{Conn: here, limit: NewLimit(1, "", nil)}, there
}

// Goal: a connection that says nothing holds no buffer. Method: sockets on which something, and
// then nothing, has arrived are tried; one that cannot be tried is read, in vain.
func TestIdleInflowHoldsNothing(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (here, there net.Conn){
		"TCP": bothEnds, "counted": limitedEnds,
	} {
		here, there := open(t)
		f := newInflow(here)
		if f.socket == nil {
			t.Fatalf("%s: the socket is not found", name)
		}
		if _, err := io.WriteString(there, "some"); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 3)
		if n, err := f.Read(p); n != 3 || err != nil || f.held == nil {
			t.Errorf("%s: read %d, %v; a buffer is held: %v", name, n, err, f.held != nil)
		}
		if n, err := f.Read(p); n != 1 || err != nil || f.held != nil {
			t.Errorf("%s: read %d, %v; a buffer is held: %v", name, n, err, f.held != nil)
		}
		done := true
		if err := f.socket.Control(func(fd uintptr) { done = f.tryRead(fd) }); err != nil {
			t.Fatal(err)
		}
		if done || f.held != nil {
			t.Errorf("%s: nothing is there; done: %v; a buffer is held: %v", name, done, f.held != nil)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		f := newInflow(here)
		ended := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, f)
			ended <- err
		}()
		for _, size := range []int{1, firstRead + 1, 3 * firstRead} {
			if _, err := there.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if f.held != nil && size%firstRead != 0 {
				t.Errorf("after %d bytes a buffer is held", size)
			}
		}
		_ = there.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
