package inprocess

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Line is a proxy for connections to one member. To a program whose line is frozen the member seems
// stopped, and to the member the program seems stopped.
type Line struct {
	front, back string
	dial        func(ctx context.Context, at string) (net.Conn, error)
	all         sync.WaitGroup
	frozen      atomic.Bool
	deaf        atomic.Bool
	lose        atomic.Int64 // 1 if the next data from the member is lost

	mu    sync.Mutex // guards the following fields
	cut   bool
	conns map[net.Conn]struct{}
}

// Line creates a line to the member, which stays usable when the member restarts.
func (m *Member) Line() *Line {
	m.t.Helper()
	l := &Line{
		front: fmt.Sprint(m.socket(), m.lines.Add(1)), back: m.socket(),
		dial: Dialer(m.t), conns: make(map[net.Conn]struct{}),
	}
	listener := Listen(m.t, l.front)
	l.all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.all.Go(func() { l.serve(c) })
		}
	})
	m.t.Cleanup(func() {
		_ = listener.Close()
		l.SetCut(true)
		l.all.Wait()
	})
	return l
}

// Endpoint returns the endpoint of the line for clients.
func (l *Line) Endpoint() string { return "unix:" + l.front }

// Break breaks all connections. New connections work as before.
func (l *Line) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// SetCut breaks all connections and refuses new ones, or accepts them again.
func (l *Line) SetCut(cut bool) {
	l.mu.Lock()
	l.cut = cut
	l.mu.Unlock()
	if cut {
		l.Break()
	}
}

// SetFrozen makes the line accept all data and forward none, or forward data again. A connection
// that received data while frozen stays frozen.
func (l *Line) SetFrozen(frozen bool) { l.frozen.Store(frozen) }

// SetDeaf is like SetFrozen, but only for data from the member.
func (l *Line) SetDeaf(deaf bool) { l.deaf.Store(deaf) }

// Lose drops the nth chunk of data that arrives from the member from now on, and breaks the
// connection.
func (l *Line) Lose(n int) { l.lose.Store(int64(n)) }

// Busy reports whether there are connections.
func (l *Line) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns) > 0
}

// serve forwards a connection's data until one of its ends closes.
func (l *Line) serve(in net.Conn) {
	defer in.Close()
	out, err := l.dial(context.Background(), l.back)
	if err != nil {
		return
	}
	defer out.Close()
	l.mu.Lock()
	refused := l.cut
	if !refused {
		l.conns[in] = struct{}{}
	}
	l.mu.Unlock()
	if refused {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pass(out, in, false) })
	both.Go(func() { l.pass(in, out, true) })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, in)
}

// pass forwards data, and drops data while the line is frozen. Neither end can tell, since the rest
// of the connection's data is dropped, too.
func (l *Line) pass(to, from net.Conn, fromMember bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil || fromMember && l.lose.Add(-1) == 0 {
			return
		}
		if l.frozen.Load() || fromMember && l.deaf.Load() {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
