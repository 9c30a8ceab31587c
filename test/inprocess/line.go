package inprocess

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Line is a proxy for connections to one member. When a line is frozen, the member and the programs
// on the other side appear stopped to each other.
type Line struct {
	front, back string
	dial        func(ctx context.Context, at string) (net.Conn, error)
	all         sync.WaitGroup
	frozen      atomic.Bool
	deaf        atomic.Bool
	// number of chunks from the member up to and including the one to lose
	lose atomic.Int64

	mu    sync.Mutex // guards the following fields
	cut   bool
	conns map[net.Conn]struct{}
}

// Line creates a line to the member. The line remains usable across restarts of the member.
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

// Endpoint returns the line's endpoint for clients.
func (l *Line) Endpoint() string { return "unix:" + l.front }

// Break closes all connections. New connections are still accepted.
func (l *Line) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// SetCut cuts the line or restores it. A cut line has no connections and refuses new ones.
func (l *Line) SetCut(cut bool) {
	l.mu.Lock()
	l.cut = cut
	l.mu.Unlock()
	if cut {
		l.Break()
	}
}

// SetFrozen freezes or unfreezes the line. A frozen line discards all data that it receives. A
// connection that received data while the line was frozen remains frozen.
func (l *Line) SetFrozen(frozen bool) { l.frozen.Store(frozen) }

// SetDeaf is like SetFrozen, but affects only data from the member.
func (l *Line) SetDeaf(deaf bool) { l.deaf.Store(deaf) }

// Lose drops the nth chunk of data that arrives from the member, counted from now, and closes its
// connection.
func (l *Line) Lose(n int) { l.lose.Store(int64(n)) }

// Busy reports whether the line has any connections.
func (l *Line) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns) > 0
}

// serve forwards a connection's data until either end closes it.
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

// pass forwards data in one direction. If data arrives while the line is frozen, pass drops it and
// everything after it, so neither end sees a gap in the data.
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
