package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/internal/listen"
)

// These errors can be returned by several calls.
var (
	// ErrRemoved means that a member is no longer part of the cluster. Handler.Admit
	// returns it to keep a member out for good, and SendSnapshot, when the other
	// side says so of this member.
	ErrRemoved = errors.New("transport: the member was removed from the cluster")
	// ErrVersion means that a member does not speak the cluster version.
	ErrVersion = errors.New("transport: the member does not speak the cluster version")
	// ErrLost means that the cluster remembers a member with another incarnation: the data
	// that had its promises are lost. Handler.Admit returns it, too.
	ErrLost = errors.New("transport: the member comes back without its data")
	// ErrCopy means that another process of the same member is running.
	ErrCopy = errors.New("transport: another process with the identity of this member is running")
	// errUnknown means that the last Update did not name the member.
	errUnknown = errors.New("transport: no such member")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("transport: closed")
)

// A remoteError is what the other side answered; the connection was good.
type remoteError struct{ Text string }

// Error implements error.
func (e *remoteError) Error() string { return "transport: the other member says: " + e.Text }

// MaxMessage is the largest message, and the largest chunk of a snapshot, in
// bytes. A larger one is dropped, with a line in the log.
const MaxMessage = 64 << 20

// A Message is anything that can be encoded. The transport encodes it on a
// goroutine of its own, perhaps several times if it goes to several members, so
// it must not change after Send.
type Message interface {
	// Size is about how many bytes AppendTo will append. Queues are bounded by
	// it. It should be cheap: it is called by Send.
	Size() int
	// AppendTo appends the encoding to b and returns the result.
	AppendTo(b []byte) []byte
}

// A Peer is another member and where it listens.
type Peer struct {
	ID   uint64
	URLs []url.URL
	// Incarnation is the one that is known, 0 for none. It is not looked at but for
	// whether it has changed, for then Admit may have another answer.
	Incarnation uint64
}

// A Visitor is who opens a stream: a member, its data, the formats that its process speaks, and
// the cluster version of its state with the index of the entry that decided it.
type Visitor struct {
	Member, Incarnation uint64
	Formats             Formats
	Version             uint8
	Decided             uint64
}

// A Handler is told what arrives. Its methods are called from several
// goroutines at once, never from inside a call to the transport. A method that
// blocks holds up only what its comment says, and Close, which waits for all.
type Handler interface {
	Gatekeeper
	Receiver
	Impostors
	Installer
}

// A Gatekeeper decides which members are let in, and learns where this one is not.
type Gatekeeper interface {
	// Admit says whether a member may send: nil, or ErrRemoved, ErrLost or one that wraps
	// ErrVersion, or why not now (the other side will ask again). A member may be unknown here
	// because it joined a moment ago. Asked when a stream begins and after each Update that
	// changed something.
	Admit(v Visitor) error
	// Met says that another member has admitted this one, and as whom it answered; it
	// is asked as Admit is, and ends the connection if it does not return nil.
	Met(member, incarnation uint64) error
	// Expelled says that another member will never let this one in again: its Admit said
	// why, ErrRemoved, ErrLost or ErrVersion; or another process of this member is connected
	// there and alive, ErrCopy. Once for each connection that was refused or ended so; dialing goes
	// on, slowly.
	Expelled(by uint64, why error)
}

// A Receiver gets messages, and learns which members they may not have reached.
type Receiver interface {
	// Receive gets one message. For each sender the calls are one after another,
	// in the order of sending. To block is back-pressure: the sender's queue fills,
	// then it drops. The handler may keep data.
	Receive(from uint64, data []byte)
	// Unreachable says that messages to member may have been lost: its connection
	// broke, or its queue ran over. One call may stand for many messages.
	Unreachable(member uint64)
	// Gone says that the process that member was has ended for certain: a
	// connection to or from it broke and a new one was refused at each of its URLs,
	// or another process answers under its ID. Once for each process. Messages that
	// the dead process sent before may still be received after it; those of a new
	// process come later.
	Gone(member uint64)
}

// Impostors is told of processes that go by the identity of another one.
type Impostors interface {
	// Copied says that two processes of a member are alive, one of which has been refused:
	// its data directory was copied. The member may be this one, if another member says so.
	Copied(member uint64)
	// Claimed says that a member of another cluster takes this one for the member of its
	// own cluster with the same ID.
	Claimed(cluster, by uint64)
}

// An Installer takes the state of another member, and tells who the members are.
type Installer interface {
	// Snapshot receives one snapshot: header is the sender's, and next yields the
	// chunks, which the handler may keep, until io.EOF; any other error means that
	// the rest will not come. The error returned goes to the sender as remoteError;
	// nil tells it that the snapshot is safe here. ctx ends with the connection
	// and with Close.
	Snapshot(ctx context.Context, from uint64, header []byte, next func() ([]byte, error)) error
	// Describe answers, to one that perhaps is no member yet, who the members are.
	Describe() []byte
}

// Config is what New takes. Cluster, Self, Process, Formats, Version and Handler are required.
type Config struct {
	// Cluster and Self are the IDs of the cluster and of this member. A stream
	// from another cluster, or one meant for another member, is refused with words.
	Cluster, Self uint64
	// Process is a random number, not 0, that tells this process from an earlier
	// one of the same member.
	Process uint64
	// Incarnation is a random number that tells this member's data from others that it
	// had earlier. The other side's Admit is asked about it.
	Incarnation uint64
	// Formats are those that this process speaks.
	Formats Formats
	// Version returns the cluster version of this member's state, and the index of the entry that
	// decided it. The other side's Admit is asked about them.
	Version func() (version uint8, decided uint64)
	// Way is how to connect. The listener's side is the business of Serve's caller.
	Way     Way
	Handler Handler
	// RoundTrip is told how long a connected member took to answer, about once a second for each,
	// and when Ask has asked. Default: nobody is.
	RoundTrip func(member uint64, took time.Duration)
	// Panics ends the streams that panic. Nil ends none: the process does.
	Panics *listen.Panics
	// Logger is told when a member's connection comes and goes. Default: none.
	Logger *slog.Logger
}

// A Way is how to connect to others.
type Way struct {
	// TLS is for https and unixs URLs (listen.TLS.Client makes it); nil for none.
	TLS *tls.Config
	// Dial, if set, is called in the place of [net.Dialer.DialContext].
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Token, if it is not empty, is a secret that all members have: see token.go. In Config
	// it is also what others must know.
	Token []byte
}

// Transport is one member's end. Its methods may be called from several
// goroutines.
type Transport struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	server *grpc.Server
	wg     sync.WaitGroup // goroutines that are not gRPC's
	// Between lines of the log about calls without a proof, and about broken frames.
	noProof, badFrame listen.Pause
	linePauses        linePauses

	mu     sync.RWMutex
	closed bool
	// listed are the URLs of the others as Update said, and own those of this member.
	listed map[uint64][]url.URL
	own    []string
	// incarnations are the others' incarnations as Update said.
	incarnations map[uint64]uint64
	// links lead to all members that are listed, and to others that send to us and
	// have said where they listen.
	links map[uint64]*link
	// inbound has the newest stream of each member that sends to us, whether it has
	// a link or not.
	inbound map[uint64]*inbound
}

// New returns a transport that knows no members yet, see [Transport.Update], and
// receives nothing, see [Transport.Serve]. It panics if a required field of the
// configuration is missing.
func New(cfg Config) *Transport {
	if cfg.Cluster == 0 || cfg.Self == 0 || cfg.Process == 0 || cfg.Handler == nil ||
		!cfg.Formats.valid() {
		panic("transport: Cluster, Self, Process, Formats and Handler are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.RoundTrip == nil {
		cfg.RoundTrip = func(uint64, time.Duration) {}
	}
	t := &Transport{
		cfg: cfg, log: cfg.Logger,
		links:   make(map[uint64]*link),
		inbound: make(map[uint64]*inbound),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.server = grpc.NewServer(t.serverOptions()...)
	t.server.RegisterService(&service, t)
	return t
}

// Update replaces the set of other members. It is cheap when nothing has
// changed; Self may be among them: its URLs are told to whom this member calls.
// Connections to members that left, or whose URLs changed, are closed, and those
// that serve members whom Admit no longer lets in. It does not wait for any of that.
//
// A member that is not in the set, and that Admit lets in, can be sent to for as
// long as it sends: it has said where it listens. So can one that listens elsewhere than
// the set says. A member that was down while the others changed knows no better, and
// could not answer the leader who would tell it.
func (t *Transport) Update(peers []Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	listed := make(map[uint64][]url.URL, len(peers))
	incarnations := make(map[uint64]uint64, len(peers))
	for _, p := range peers {
		switch {
		case p.ID == t.cfg.Self:
			t.own = urlTexts(p.URLs)
		case listed[p.ID] == nil:
			listed[p.ID] = append([]url.URL{}, p.URLs...)
			incarnations[p.ID] = p.Incarnation
		}
	}
	if maps.EqualFunc(t.listed, listed, slices.Equal) && maps.Equal(t.incarnations, incarnations) {
		return
	}
	t.listed, t.incarnations = listed, incarnations
	t.relinkLocked()
	t.wg.Go(t.admitAgain)
}

// relinkLocked makes the links that should be there, and ends the others.
func (t *Transport) relinkLocked() {
	if t.closed {
		return
	}
	urls := make(map[uint64][]url.URL, len(t.listed)+len(t.inbound))
	maps.Copy(urls, t.listed)
	for id, in := range t.inbound {
		known := urlTexts(urls[id])
		for _, u := range in.urls {
			if !slices.Contains(known, u.String()) {
				urls[id] = append(slices.Clip(urls[id]), u)
			}
		}
	}
	next := make(map[uint64]*link, len(urls))
	for id, u := range urls {
		if old := t.links[id]; old != nil && slices.Equal(old.urls, u) {
			next[id] = old
		} else {
			next[id] = newLink(t, Peer{ID: id, URLs: u}, old)
		}
	}
	for id, l := range t.links {
		if next[id] != l {
			l.cancel()
		}
	}
	for id, l := range next {
		if t.links[id] != l {
			l.start()
		}
	}
	t.links = next
}

// admitAgain ends the streams of members that may no longer send.
func (t *Transport) admitAgain() {
	t.mu.RLock()
	streams := make([]*inbound, 0, len(t.inbound))
	for _, in := range t.inbound {
		streams = append(streams, in)
	}
	t.mu.RUnlock()
	for _, in := range streams {
		if err := t.cfg.Handler.Admit(in.visitor); err != nil {
			in.end(err)
		}
	}
}

func (t *Transport) link(member uint64) *link {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.links[member]
}

// isListed reports whether Update named the member.
func (t *Transport) isListed(member uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.listed[member] != nil
}

// Send leaves m in the queue of a member and never blocks. If the queue is full,
// m is dropped and Unreachable reported. While the member is not connected, only
// the newest few messages are kept. What is sent to an unknown member is dropped.
func (t *Transport) Send(to uint64, m Message) {
	if l := t.link(to); l != nil {
		l.send(m)
	}
}

// Serve receives on l until Close, or until l is closed, then returns nil, or
// until l fails. l yields connections whose TLS handshake is done, as
// listen.Mux.GRPC does, or plain ones. Serve may be called for several listeners.
func (t *Transport) Serve(l net.Listener) error {
	err := t.server.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Since says since when this member has had a connection to another; ok is false
// if it has none now.
func (t *Transport) Since(member uint64) (since time.Time, ok bool) {
	l := t.link(member)
	if l == nil {
		return time.Time{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, !l.since.IsZero()
}

// Close ends all connections, closes the listeners, and waits until every
// goroutine has ended and no method of the handler runs any more: a handler that
// blocks in Receive must let go when its owner stops. What is still queued is
// dropped. It may be called again.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.links = make(map[uint64]*link)
	t.mu.Unlock()
	t.cancel()
	t.server.Stop()
	t.wg.Wait()
	return nil
}
