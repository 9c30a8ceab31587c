package listen

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"
)

// TestLimit checks that connections above the limit are closed immediately and logged. Closing a
// connection frees its slot once, no matter how often it is closed.
func TestLimit(t *testing.T) {
	log := make(lines, 1)
	limit := NewLimit(2, "do this", slog.New(slog.NewTextHandler(log, nil)))
	p := newPipes()
	l := limit.Listener(p)
	type end = io.Closer
	accepted := make(chan end)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	p.dial()
	first := <-accepted
	p.dial()
	<-accepted
	refused := p.dial()
	if _, err := refused.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the third connection: %v", err)
	}
	if line := <-log; !strings.Contains(line, "2 connections are already open; do this") {
		t.Errorf("the log says %q", line)
	}
	_ = first.Close()
	_ = first.Close()
	p.dial()
	<-accepted
	if _, err := p.dial().Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the limit has grown: %v", err)
	}
	_ = l.Close()
	<-accepted
}

// TestStrangersEvicted checks that silent connections that have not logged in do not keep others
// out when the limit is reached.
func TestStrangersEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 5 * time.Second
		limit := NewLimit(2, "", slog.New(slog.DiscardHandler))
		limit.CloseStrangers(patience)
		p := newPipes()
		l := limit.Listener(p)
		connect := func() (client, server net.Conn) {
			got := make(chan net.Conn, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
				}
				got <- c
			}()
			return p.dial(), <-got
		}
		open := func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		first, _ := connect()
		known, server := connect()
		MarkLoggedIn(peer.NewContext(t.Context(), &peer.Peer{Addr: remote{Addr: server.RemoteAddr()}}))
		second, _ := connect()
		if open(first) || !open(known) || !open(second) {
			t.Errorf("open: first %v, known %v, second %v", open(first), open(known), open(second))
		}
		time.Sleep(patience)
		synctest.Wait()
		if open(second) || !open(known) || limit.held != 1 {
			t.Errorf("open: second %v, known %v; held %d", open(second), open(known), limit.held)
		}
		other, server := connect()
		MarkLoggedIn(peer.NewContext(t.Context(), &peer.Peer{Addr: remote{Addr: server.RemoteAddr()}}))
		refused := make(chan struct{})
		go func() {
			// returns only when the test ends, because the third connection is over the limit
			_, _ = l.Accept()
			close(refused)
		}()
		third := p.dial()
		time.Sleep(2 * patience)
		synctest.Wait()
		if open(third) || !open(known) || !open(other) {
			t.Error("a member was closed for another connection")
		}
		_ = l.Close()
		<-refused
	})
}

// TestStrangersOfOneSiteAreBounded checks that strangers from one site leave room for strangers
// from another site and for logged-in connections. No stranger is closed because of its age.
func TestStrangersOfOneSiteAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10
		limit := NewLimit(10*most, "", slog.New(slog.DiscardHandler))
		limit.BoundStrangers(most)
		comes := func(from string) *counted {
			a, b := net.Pipe()
			t.Cleanup(func() { _, _ = a.Close(), b.Close() })
			return arrive(t, limit, visitor{a, from})
		}
		known := comes("10.0.0.3:1")
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: remote{Addr: known.RemoteAddr()}})
		if !IsStranger(ctx) {
			t.Error("it is no stranger's before the login")
		}
		if MarkLoggedIn(ctx); IsStranger(ctx) {
			t.Error("it is a stranger's after the login")
		}
		other := comes("10.0.0.2:1")
		for i := range 5 * most {
			comes(fmt.Sprintf("10.0.0.3:%d", i+2))
		}
		time.Sleep(24 * time.Hour)
		limit.mu.Lock()
		defer limit.mu.Unlock()
		if known.gone || other.gone || limit.strangers.size != most || limit.held != most+1 {
			t.Errorf("gone: known %v, other %v; %d strangers, %d in all", known.gone, other.gone,
				limit.strangers.size, limit.held)
		}
	})
}

// TestIdleEvicted checks which connection is closed to make room when all of them have logged in.
// An idle connection is closed first. If none is idle, a connection is closed from a site that has
// more of them than the new one's site. A site does not displace another site that has as few
// connections as it does.
func TestIdleEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := NewLimit(10, "", slog.New(slog.DiscardHandler))
		limit.BoundStrangers(5)
		type client struct {
			*counted
			far net.Conn
		}
		comes := func(from string) (c client, ok bool) {
			a, b := net.Pipe()
			t.Cleanup(func() { _, _ = a.Close(), b.Close() })
			c = client{&counted{Conn: visitor{a, from}, limit: limit, site: Site(from)}, b}
			if ok = limit.admit(c.counted); ok {
				c.markKnown()
			}
			return c, ok
		}
		says := func(list ...client) {
			for _, c := range list {
				go func() { _, _ = c.far.Write([]byte{0}) }()
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
			}
		}
		var crowd, few []client
		for range 8 {
			c, _ := comes("10.0.0.1:1")
			crowd = append(crowd, c)
		}
		for range 2 {
			c, _ := comes("10.0.0.2:1")
			few = append(few, c)
		}
		all := append(crowd[:8:8], few...)
		says(all...)
		if _, ok := comes("10.0.0.1:1"); ok {
			t.Error("a site closed a connection of its own that is not idle")
		}
		time.Sleep(idleTime)
		says(all[:5]...)
		says(all[6:]...)
		c, ok := comes("10.0.0.1:1")
		if !ok || !crowd[5].gone {
			t.Errorf("let in: %v; the idle one has gone: %v", ok, crowd[5].gone)
		}
		says(c)
		for range 3 { // ends with 5 each
			if c, ok := comes("10.0.0.3:1"); !ok {
				t.Error("a crowd kept out a client of another site")
			} else {
				says(c)
			}
		}
		if !crowd[0].gone || !crowd[1].gone || !crowd[2].gone || few[0].gone || few[1].gone {
			t.Error("another than the oldest of the crowd has gone")
		}
		for range 3 {
			if c, ok := comes("10.0.0.2:1"); ok {
				says(c)
			}
		}
		if n := limit.known.sites["10.0.0.1"].List.Len(); n < 3 || limit.held != 10 {
			t.Errorf("the crowd has %d connections left, all have %d", n, limit.held)
		}
	})
}

// arrive accepts a connection through a listener with the limit.
func arrive(t *testing.T, limit *Limit, v visitor) *counted {
	c, err := limit.Listener(&single{conn: v}).Accept()
	if err != nil {
		t.Fatalf("the connection was rejected: %v", err)
	}
	return c.(*counted)
}

// single is a listener that accepts one connection.
type single struct {
	net.Listener
	conn net.Conn
}

// Accept implements net.Listener.
func (s *single) Accept() (net.Conn, error) {
	if s.conn == nil {
		return nil, net.ErrClosed
	}
	c := s.conn
	s.conn = nil
	return c, nil
}

// visitor is a connection from a given address.
type visitor struct {
	net.Conn
	addr string
}

func (c visitor) RemoteAddr() net.Addr { return textAddr(c.addr) }

type textAddr string

func (a textAddr) Network() string { return "tcp" }
func (a textAddr) String() string  { return string(a) }
