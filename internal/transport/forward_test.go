package transport

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"leasehold.dev/test/virtual"
)

// forwarder is a network link between two members that can be cut.
type forwarder struct {
	url url.URL

	mu      sync.Mutex
	cond    *sync.Cond
	stalled bool
	closed  bool
	conns   map[net.Conn]struct{}
}

func forward(t *testing.T, to string) *forwarder {
	t.Helper()
	l := virtual.Port(t)
	f := &forwarder{
		url:   url.URL{Scheme: "http", Host: l.Addr().String()},
		conns: make(map[net.Conn]struct{}),
	}
	f.cond = sync.NewCond(&f.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := virtual.Dial(t.Context(), "tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			f.mu.Lock()
			f.conns[in], f.conns[out] = struct{}{}, struct{}{}
			if f.closed { // the test has ended, so nothing else would close these
				_, _ = in.Close(), out.Close()
			}
			f.mu.Unlock()
			wg.Go(func() { f.copy(in, out) })
			wg.Go(func() { f.copy(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		f.closed = true
		f.mu.Unlock()
		f.resume()
		f.cut()
		wg.Wait()
	})
	return f
}

// copy copies data while the link is not stalled, and then closes both ends.
func (f *forwarder) copy(dst, src net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		f.mu.Lock()
		for f.stalled {
			f.cond.Wait()
		}
		f.mu.Unlock()
		if _, werr := dst.Write(buf[:n]); err == nil {
			err = werr
		}
		if err == nil {
			continue
		}
		if err != io.EOF {
			_ = src.Close()
		}
		_ = dst.Close()
		_ = src.Close()
		f.mu.Lock()
		delete(f.conns, src)
		delete(f.conns, dst)
		f.mu.Unlock()
		return
	}
}

func (f *forwarder) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *forwarder) stall() { f.set(true) }

func (f *forwarder) resume() { f.set(false) }

func (f *forwarder) set(stalled bool) {
	f.mu.Lock()
	f.stalled = stalled
	f.mu.Unlock()
	f.cond.Broadcast()
}

func (f *forwarder) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

func (f *forwarder) urls() []url.URL { return []url.URL{f.url} }
