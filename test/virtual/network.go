package virtual

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"leasehold.dev/internal/backoff"
)

// Like TCP, a dial sends a SYN again if it gets no response. It gives up after a number of SYNs and
// not after a time, because a test in real time can be paused: its packets are late, but not lost.
const (
	maxSYNs    = 5
	retransmit = 200 * time.Millisecond
)

// Network connects machines. Its connections are reliable and keep data in order. They deliver data
// after a delay. Data on a cut path waits until the path is restored.
type Network struct {
	usual Conditions
	find  func(at string) *Machine

	mu        sync.Mutex // guards the following fields
	rng       *rand.Rand
	listeners map[string]*listener
	paths     map[direction]*Conditions
	pairs     map[*pair]struct{}
	dialed    int
}

// direction is one direction between two machines. It refers to machines by name, so its conditions
// survive the restart of a member.
type direction struct{ from, to string }

// Conditions describes the state of the path from one machine to another.
type Conditions struct {
	Cut    bool
	Delay  time.Duration // applies to all data
	Jitter time.Duration // maximum additional delay
}

// NewNetwork returns a network. find returns the machine that currently has an address, even if
// nothing listens there. rng determines the jitter. Both can be nil.
func NewNetwork(usual Conditions, find func(at string) *Machine, rng *rand.Rand) *Network {
	if rng == nil {
		rng = rand.New(rand.NewPCG(1, 1))
	}
	return &Network{
		usual: usual, find: find, rng: rng, listeners: make(map[string]*listener),
		paths: make(map[direction]*Conditions), pairs: make(map[*pair]struct{}),
	}
}

func (n *Network) pathLocked(from, to *Machine) *Conditions {
	if w := n.paths[direction{from.Name, to.Name}]; w != nil {
		return w
	}
	return &n.usual
}

func (n *Network) open(from, to *Machine) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.pathLocked(from, to).Cut
}

func (n *Network) delay(from, to *Machine) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.pathLocked(from, to)
	return w.Delay + time.Duration(n.rng.Int64N(int64(w.Jitter)+1))
}

// Set sets the conditions of a path. If w is nil, Set restores the usual conditions.
func (n *Network) Set(from, to *Machine, w *Conditions) {
	n.mu.Lock()
	if w == nil {
		delete(n.paths, direction{from.Name, to.Name})
	} else {
		n.paths[direction{from.Name, to.Name}] = w
	}
	n.mu.Unlock()
	n.recheck()
}

// answers reports whether a machine receives a reset if another machine rejects its data.
func (n *Network) answers(from, to *Machine) bool {
	return !to.silent.Load() && n.open(from, to) && n.open(to, from)
}

// recheck makes all readers and writers check whether their paths are open.
func (n *Network) recheck() {
	n.mu.Lock()
	halves := make([]*half, 0, 2*len(n.pairs))
	for p := range n.pairs {
		halves = append(halves, p.to, p.from)
	}
	n.mu.Unlock()
	for _, h := range halves {
		h.mu.Lock()
		h.wakeLocked()
		h.mu.Unlock()
	}
}

// forget removes a connection once neither end can write.
func (n *Network) forget(p *pair) {
	if p.from.over() && p.to.over() {
		n.mu.Lock()
		delete(n.pairs, p)
		n.mu.Unlock()
	}
}

// sever closes a machine's connections and listeners. A peer receives a reset if the path is open
// and the machine is not silent.
func (n *Network) sever(m *Machine) {
	n.mu.Lock()
	var broken []*pair
	for p := range n.pairs {
		if p.to.from == m || p.to.to == m {
			broken = append(broken, p)
		}
	}
	var doors []*listener
	for _, l := range n.listeners {
		if l.on == m {
			doors = append(doors, l)
		}
	}
	n.mu.Unlock()
	for _, l := range doors {
		_ = l.Close()
	}
	for _, p := range broken {
		out, in := p.to, p.from
		if out.from != m {
			out, in = in, out
		}
		in.closeRead()
		if n.answers(out.to, m) {
			out.fail(syscall.ECONNRESET)
			in.fail(syscall.ECONNRESET)
		}
		n.forget(p)
	}
}

// listener is a listening port or socket of a machine.
type listener struct {
	net  *Network
	on   *Machine
	at   string
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

func (n *Network) listen(on *Machine, at string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if on.IsDead() {
		return nil, opError("listen", at, net.ErrClosed)
	}
	if n.listeners[at] != nil {
		return nil, opError("listen", at, syscall.EADDRINUSE)
	}
	l := &listener{net: n, on: on, at: at, in: make(chan net.Conn, 128), done: make(chan struct{})}
	n.listeners[at] = l
	return l, nil
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.on.Gate()
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, opError("accept", l.at, net.ErrClosed)
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, l.at)
		l.net.mu.Unlock()
		close(l.done)
	})
	for {
		select {
		case c := <-l.in: // close connections that were never accepted
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return addr(l.at) }

// dial connects a machine to an address.
func (n *Network) dial(ctx context.Context, m *Machine, at string) (net.Conn, error) {
	m.Gate()
	where := n.machineAt(m, at)
	for range maxSYNs {
		if n.pass(ctx, m, where) && n.pass(ctx, where, m) {
			c, waits := n.connect(m, at)
			if c != nil {
				return c, nil
			}
			if !waits {
				return nil, opError("dial", at, syscall.ECONNREFUSED)
			}
		}
		if !backoff.Sleep(ctx, retransmit) {
			return nil, opError("dial", at, ctx.Err())
		}
	}
	return nil, opError("dial", at, syscall.ETIMEDOUT)
}

// machineAt returns the machine that has an address. If n.find is nil, it returns the machine that
// listens at the address, or else the caller's machine.
func (n *Network) machineAt(asks *Machine, at string) *Machine {
	if n.find != nil {
		return n.find(at)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.listeners[at]; l != nil {
		return l.on
	}
	return asks
}

// connect connects a machine to a listener. It returns waits if too many connections are waiting to
// be accepted. connect refuses dead processes: over a new connection, a dead process could
// acknowledge writes that are not on the disk it left behind. Kill marks a process dead before it
// breaks its connections.
func (n *Network) connect(m *Machine, at string) (c *conn, waits bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[at]
	if l == nil || m.IsDead() || l.on.IsDead() {
		return nil, false
	}
	p := &pair{n.half(m, l.on), n.half(l.on, m)}
	p.to.pair, p.from.pair = p, p
	here, far := n.sourceLocked(m, at), addr(at)
	select {
	case l.in <- &conn{in: p.to, out: p.from, local: far, remote: here, pair: p}:
		n.pairs[p] = struct{}{}
		return &conn{in: p.from, out: p.to, local: here, remote: far, pair: p}, false
	default:
		return nil, true
	}
}

// sourceLocked returns the source address of a connection.
func (n *Network) sourceLocked(m *Machine, at string) net.Addr {
	switch to := addr(at).(type) {
	case *net.UnixAddr:
		return addr("")
	case *net.TCPAddr:
		if m.Name == "" {
			n.dialed++
			return &net.TCPAddr{IP: to.IP, Port: 1<<15 + n.dialed%(1<<15)}
		}
	}
	return name(m.Name + ":0")
}

// pass waits for the travel time of one packet, and reports whether it arrives.
func (n *Network) pass(ctx context.Context, from, to *Machine) bool {
	return backoff.Sleep(ctx, n.delay(from, to)) && n.open(from, to) && !to.silent.Load()
}

func (n *Network) half(from, to *Machine) *half {
	return &half{net: n, from: from, to: to, changed: make(chan struct{})}
}
