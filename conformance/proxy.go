package main

import (
	"io"
	"net"
	"sync"
	"time"
)

// proxy forwards connections from one client to one member. Data in flight when a fault begins may
// still arrive.
type proxy struct {
	target string
	l      net.Listener

	mu    sync.Mutex // guards the following fields
	conns map[net.Conn]bool
	cut   bool
	ways  [2]way
	heal  chan struct{} // closed when a hold ends
}

// These are the directions of a proxy.
const (
	up   = iota // to the member
	down        // to the client
)

// way holds the state of one direction.
type way struct {
	delay time.Duration
	hold  bool // nothing arrives until the fault ends
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{target: target, l: l, conns: map[net.Conn]bool{}, heal: make(chan struct{})}
	go p.accept()
	return p, nil
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) close() {
	_ = p.l.Close()
	p.set(func() { p.cut = true })
}

// set changes the state. A cut closes all connections and rejects new ones.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.heal)
	p.heal = make(chan struct{})
	if p.cut {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	member, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer member.Close()
	if !p.add(member) {
		return
	}
	defer p.remove(member)
	done := make(chan struct{}, 2)
	go func() { p.pump(up, client, member); done <- struct{}{} }()
	go func() { p.pump(down, member, client); done <- struct{}{} }()
	<-done
}

func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cut {
		p.conns[c] = true
	}
	return !p.cut
}

func (p *proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// piece is some data and the time at which it was read.
type piece struct {
	bytes []byte
	at    time.Time
}

// pump forwards data from one side to the other, delaying each piece by the current delay.
func (p *proxy) pump(direction int, from io.Reader, to io.Writer) {
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				pieces <- piece{b[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	for x := range pieces {
		if !p.wait(direction, x.at) {
			break
		}
		if _, err := to.Write(x.bytes); err != nil {
			break
		}
	}
	for range pieces { // drains until the connections are closed
	}
}

// wait waits until data read at the given time may pass. It returns false if the proxy has been
// cut.
func (p *proxy) wait(direction int, at time.Time) bool {
	for {
		p.mu.Lock()
		w, heal, cut := p.ways[direction], p.heal, p.cut
		p.mu.Unlock()
		left := time.Until(at.Add(w.delay))
		switch {
		case cut:
			return false
		case w.hold:
			<-heal
			continue
		case left <= 0:
			return true
		}
		select {
		case <-time.After(left):
		case <-heal:
		}
	}
}
