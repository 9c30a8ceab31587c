package transport

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/internal/listen"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// patience is the timeout of every wait in the tests. It is not a performance target.
const patience = time.Minute

// recorder is a Handler that records its calls.
type recorder struct {
	got         chan string // messages
	unreachable chan uint64
	gone        chan uint64
	removed     chan uint64
	lost        chan uint64
	claimed     chan uint64
	copied      chan uint64
	refused     chan uint64 // members that refused this process because of another one
	foreign     chan string // ErrVersion errors passed to Expelled, as text
	admits, met chan uint64 // incarnations
	took        chan uint64 // members that responded

	admit, other atomic.Pointer[error]
	visitor      atomic.Pointer[Visitor] // the most recent one

	hold     atomic.Pointer[chan struct{}] // if set, Receive waits for it
	echo     atomic.Pointer[Transport]     // if set, Receive sends each message back through it
	snapshot func(
		ctx context.Context, from uint64, header []byte, next func() ([]byte, error),
	) error
}

func newRecorder() *recorder {
	return &recorder{
		got:         make(chan string, 1<<17),
		unreachable: make(chan uint64, 1<<10),
		gone:        make(chan uint64, 1<<10),
		removed:     make(chan uint64, 1<<10),
		lost:        make(chan uint64, 1<<10),
		claimed:     make(chan uint64, 1<<10),
		copied:      make(chan uint64, 1<<10),
		refused:     make(chan uint64, 1<<10),
		foreign:     make(chan string, 1<<10),
		admits:      make(chan uint64, 1<<17),
		met:         make(chan uint64, 1<<17),
		took:        make(chan uint64, 1),
	}
}

func (r *recorder) Admit(v Visitor) error {
	r.admits <- v.Incarnation
	r.visitor.Store(&v)
	if err := r.admit.Load(); err != nil {
		return *err
	}
	return nil
}

func (r *recorder) Receive(from uint64, data []byte) {
	if t := r.echo.Load(); t != nil {
		t.Send(from, bytesMessage(data))
		return
	}
	if hold := r.hold.Load(); hold != nil {
		<-*hold
	}
	r.got <- string(data)
}

func (r *recorder) Unreachable(m uint64) { r.unreachable <- m }
func (r *recorder) Gone(m uint64)        { r.gone <- m }
func (r *recorder) Claimed(_, m uint64)  { r.claimed <- m }
func (r *recorder) Copied(m uint64)      { r.copied <- m }

func (r *recorder) Met(_, incarnation uint64) error {
	r.met <- incarnation
	if err := r.other.Load(); err != nil {
		return *err
	}
	return nil
}

func (r *recorder) Expelled(m uint64, why error) {
	switch {
	case errors.Is(why, ErrLost):
		r.lost <- m
	case errors.Is(why, ErrCopy):
		r.refused <- m
	case errors.Is(why, ErrVersion):
		r.foreign <- why.Error()
	default:
		r.removed <- m
	}
}

func (r *recorder) Describe() []byte { return []byte("we are three") }

func (r *recorder) Snapshot(
	ctx context.Context, from uint64, header []byte, next func() ([]byte, error),
) error {
	return r.snapshot(ctx, from, header, next)
}

// member is a transport with its listener and Handler.
type member struct {
	*Transport
	*recorder
	tb   testing.TB
	mux  *listen.Mux
	url  url.URL
	log  *harness.Log
	once sync.Once

	insisted []string // texts received by insist, which can arrive again
}

// options overrides the defaults of a member.
type options struct {
	cluster        uint64
	url            url.URL
	server, client *tls.Config
	limit          *listen.Limit
	token          []byte
	formats        Formats
	real           bool // use the machine's real network
}

// bubble runs a subtest in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { virtual.Test(t, f) })
}

var processes atomic.Uint64

// start starts a member that is stopped when the test ends.
func start(tb testing.TB, id uint64, o options) *member {
	tb.Helper()
	if o.url.Scheme == "" {
		o.url.Scheme = "http"
	}
	l, dial, err := net.Listener(nil), virtual.Dial, error(nil)
	switch {
	case o.real:
		dial = nil
		l, err = listen.Listen(tb.Context(), url.URL{Scheme: "http", Host: "127.0.0.1:0"})
	case o.url.Host == "" && o.url.Path == "" || o.url.Host == "127.0.0.1:0":
		l = virtual.Port(tb)
	default:
		l, err = virtual.Listen(tb.Context(), o.url)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if o.url.Path == "" {
		o.url.Host = l.Addr().String()
	}
	if o.limit != nil {
		l = o.limit.Listener(l)
	}
	m := &member{recorder: newRecorder(), tb: tb, url: o.url, log: new(harness.Log)}
	m.Transport = New(Config{
		Cluster: max(o.cluster, 1), Self: id, Process: processes.Add(1),
		Formats:     cmp.Or(o.formats, Formats{1, 1}),
		Way:         Way{TLS: o.client, Token: o.token, Dial: dial},
		Incarnation: id + 100,
		Version:     func() (uint8, uint64) { return 1, id + 200 },
		RoundTrip: func(of uint64, _ time.Duration) {
			select {
			case m.took <- of:
			default:
			}
		},
		Handler: m.recorder, Logger: slog.New(slog.NewTextHandler(m.log, nil)),
	})
	m.open(l, o.server)
	tb.Cleanup(m.stop)
	return m
}

// open makes the member serve on l.
func (m *member) open(l net.Listener, conf *tls.Config) {
	mux := listen.NewMux(listen.MuxOptions{})
	m.mux = mux
	served := make(chan error, 2)
	go func() { served <- mux.Serve(l, conf) }()
	go func() { served <- m.Serve(mux.GRPC()) }()
	m.tb.Cleanup(func() {
		m.stop()
		for range 2 {
			if err := <-served; err != nil {
				m.tb.Errorf("serve: %v", err)
			}
		}
	})
}

func (m *member) stop() {
	m.once.Do(func() {
		_ = m.mux.Close()
		if err := m.Close(); err != nil {
			m.tb.Errorf("close: %v", err)
		}
	})
}

func (m *member) peer(id uint64) Peer { return Peer{ID: id, URLs: []url.URL{m.url}} }

// pair starts members 1 and 2, which know each other, and waits until both are connected.
func pair(tb testing.TB, o options) (a, b *member) {
	tb.Helper()
	a, b = start(tb, 1, o), start(tb, 2, o)
	a.Update([]Peer{a.peer(1), b.peer(2)})
	b.Update([]Peer{a.peer(1), b.peer(2)})
	a.meet(b, "hello")
	b.meet(a, "hello")
	return a, b
}

// meet sends a message to b and waits until it arrives.
func (m *member) meet(b *member, text string) {
	m.tb.Helper()
	m.Send(b.cfg.Self, bytesMessage(text))
	for !b.hears(text, want(m.tb, b.got)) {
	}
}

// insist resends a message to b until it arrives, because messages can be lost while connections
// change. It can arrive more than once, and late.
func (m *member) insist(b *member, text string) {
	m.tb.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	end := time.After(patience)
	for {
		m.Send(b.cfg.Self, bytesMessage(text))
		select {
		case got := <-b.got:
			if b.hears(text, got) {
				b.insisted = append(b.insisted, text)
				return
			}
		case <-again.C:
		case <-end:
			m.tb.Fatal("nothing came")
		}
	}
}

// hears reports whether got is the expected text. It fails the test if got is neither that nor a
// repeat of an earlier text.
func (m *member) hears(text, got string) bool {
	m.tb.Helper()
	if got != text && !slices.Contains(m.insisted, got) {
		m.tb.Fatalf("received %q, want %q", got, text)
	}
	return got == text
}

// want returns the next value. It fails the test if none arrives within patience.
func want[T any](tb testing.TB, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		tb.Fatal("nothing came")
		panic("unreachable")
	}
}

// never checks that c has no value.
func never[T any](tb testing.TB, what string, c <-chan T) {
	tb.Helper()
	select {
	case v := <-c:
		tb.Errorf("%s: %v", what, v)
	default:
	}
}

// until polls a condition that has no notification.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-deadline:
			tb.Fatalf("still not: %s", what)
		case <-ticker.C:
		}
	}
}

// pause waits for d. It is for tests that check that something does not happen.
func pause(d time.Duration) { <-time.After(d) }

// chunks returns a source of n chunks for SendSnapshot.
func chunks(n, size int) func() ([]byte, error) {
	i := 0
	return func() ([]byte, error) {
		if i == n {
			return nil, io.EOF
		}
		i++
		return bytes.Repeat([]byte{byte(i)}, size), nil
	}
}

// inMemory makes w use the in-memory network of the tests.
func inMemory(w Way) Way {
	w.Dial = virtual.Dial
	return w
}
