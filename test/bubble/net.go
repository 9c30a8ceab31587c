package bubble

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// synTimeout is how long a connection may take to be made.
const synTimeout = time.Second

// network joins machines. Its connections keep the order of what is written, lose nothing,
// and deliver it after a delay, or when the way is open again.
type network struct {
	mu        sync.Mutex // guards what follows
	rng       *rand.Rand
	listeners map[string]*listener
	ways      map[way]*weather
	pairs     map[*pair]struct{}
	usual     weather
}

// way is one direction between two machines, by their names: that of a member which starts again
// is what it was.
type way struct{ from, to string }

// weather is what happens to what is sent.
type weather struct {
	cut    bool
	delay  time.Duration // of all
	jitter time.Duration // at most so much more
}

func newNetwork(rng *rand.Rand) *network {
	return &network{
		rng: rng, listeners: make(map[string]*listener), ways: make(map[way]*weather),
		pairs: make(map[*pair]struct{}),
		usual: weather{delay: 200 * time.Microsecond, jitter: 300 * time.Microsecond},
	}
}

func (n *network) wayLocked(from, to *machine) *weather {
	if w := n.ways[way{from.name, to.name}]; w != nil {
		return w
	}
	return &n.usual
}

func (n *network) open(from, to *machine) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.wayLocked(from, to).cut
}

func (n *network) delay(from, to *machine) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wayLocked(from, to)
	return w.delay + time.Duration(n.rng.Int64N(int64(w.jitter)+1))
}

// set gives a way its weather; nil is the usual one.
func (n *network) set(from, to *machine, w *weather) {
	n.mu.Lock()
	if w == nil {
		delete(n.ways, way{from.name, to.name})
	} else {
		n.ways[way{from.name, to.name}] = w
	}
	n.mu.Unlock()
	n.bump()
}

// answers reports whether one machine is told now that another does not take what it sends.
func (n *network) answers(from, to *machine) bool {
	return !to.silent.Load() && n.open(from, to) && n.open(to, from)
}

// bump makes all look again whether their way is open.
func (n *network) bump() {
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

// forget drops a connection of which neither end writes any more.
func (n *network) forget(p *pair) {
	if p.from.over() && p.to.over() {
		n.mu.Lock()
		delete(n.pairs, p)
		n.mu.Unlock()
	}
}

// sever breaks the connections of a machine, and closes its doors. The others learn of it if
// the way is open, and if it is not silent.
func (n *network) sever(m *machine) {
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
		in.leave()
		if n.answers(out.to, m) {
			out.fail(syscall.ECONNRESET)
			in.fail(syscall.ECONNRESET)
		}
		n.forget(p)
	}
}

// listener is a door of a machine.
type listener struct {
	net  *network
	on   *machine
	at   string
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

func (n *network) listen(on *machine, at string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if on.isDead() {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr(at), Err: net.ErrClosed}
	}
	if n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr(at), Err: syscall.EADDRINUSE}
	}
	l := &listener{net: n, on: on, at: at, in: make(chan net.Conn, 128), done: make(chan struct{})}
	n.listeners[at] = l
	return l, nil
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.on.gate()
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: addr(l.at), Err: net.ErrClosed}
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		if l.net.listeners[l.at] == l {
			delete(l.net.listeners, l.at)
		}
		l.net.mu.Unlock()
		close(l.done)
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return addr(l.at) }

// dial connects a machine with an address. where says on which machine that is, whether
// anybody listens there or not.
func (n *network) dial(ctx context.Context, m, where *machine, at string) (net.Conn, error) {
	m.gate()
	ctx, cancel := context.WithTimeout(ctx, synTimeout)
	defer cancel()
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: addr(at), Err: err}
	}
	for _, w := range [][2]*machine{{m, where}, {where, m}} {
		if err := n.pass(ctx, w[0], w[1]); err != nil {
			return fail(err)
		}
	}
	n.mu.Lock()
	l := n.listeners[at]
	n.mu.Unlock()
	if l == nil {
		return fail(syscall.ECONNREFUSED)
	}
	there := l.on
	p := &pair{n.half(m, there), n.half(there, m)}
	p.to.pair, p.from.pair = p, p
	here, far := addr(m.name+":0"), addr(at)
	if !n.join(p) {
		return fail(syscall.ECONNREFUSED)
	}
	select {
	case l.in <- &conn{in: p.to, out: p.from, local: far, remote: here, pair: p}:
		return &conn{in: p.from, out: p.to, local: here, remote: far, pair: p}, nil
	case <-l.done:
		return fail(syscall.ECONNREFUSED)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

// pass waits as long as a packet takes.
func (n *network) pass(ctx context.Context, from, to *machine) error {
	for {
		t := time.NewTimer(n.delay(from, to))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		if n.open(from, to) && !to.silent.Load() {
			return nil
		}
		select { // as TCP sends again
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// join adds a connection, unless a process at its ends is dead. A process that dies is dead before
// its connections are broken, so none is made behind that: through it the dead one could
// acknowledge what is not on the disk that it left.
func (n *network) join(p *pair) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.to.from.isDead() || p.to.to.isDead() {
		return false
	}
	n.pairs[p] = struct{}{}
	return true
}

func (n *network) half(from, to *machine) *half {
	return &half{net: n, from: from, to: to, changed: make(chan struct{})}
}
