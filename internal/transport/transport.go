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

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"leasehold.dev/internal/listen"
)

// Errors of several calls.
var (
	// ErrRemoved means that a member is no longer part of the cluster. Handler.Admit returns it to
	// keep a member out for good. SendSnapshot returns it when the other side reports that this
	// member was removed.
	ErrRemoved = errors.New("transport: the member was removed from the cluster")
	// ErrVersion means that a member does not support the cluster version.
	ErrVersion = errors.New("transport: the member does not support the cluster version")
	// ErrLost means that the cluster has recorded another incarnation of the member: the data with
	// its promises is lost. Handler.Admit also returns it.
	ErrLost = errors.New("transport: the member has returned without its data")
	// ErrCopy means that another process of the same member is running.
	ErrCopy = errors.New("transport: another process with the identity of this member is running")
	// errUnknown means that the last Update did not list the member.
	errUnknown = errors.New("transport: no such member")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("transport: closed")
)

// A remoteError is an error that the other side returned over a working connection.
type remoteError struct{ Text string }

// Error implements error.
func (e *remoteError) Error() string { return "transport: the other member responded: " + e.Text }

// MaxMessage is the size of the largest message, and of the largest chunk of a snapshot, in bytes.
// A larger one is dropped and logged.
const MaxMessage = 64 << 20

// A Message is anything that can be encoded. The transport encodes it on its own goroutine, once
// for each member that it is sent to, so it must not change after Send.
type Message interface {
	// Size is approximately how many bytes AppendTo will append. It bounds queues. Send calls it,
	// so it should be cheap.
	Size() int
	// AppendTo appends the encoding to b and returns the result.
	AppendTo(b []byte) []byte
}

// A Peer is another member and its URLs.
type Peer struct {
	ID   uint64
	URLs []url.URL
	// Incarnation is the known incarnation, 0 for none. Only changes matter: after one, Admit may
	// decide differently.
	Incarnation uint64
}

// A Visitor is a member that opens a stream: its ID, its data, the formats that its process speaks,
// and the cluster version of its state with the index of the entry that decided it.
type Visitor struct {
	Member, Incarnation uint64
	Formats             Formats
	Version             uint8
	Decided             uint64
}

// A Handler receives messages and events. Its methods are called concurrently, never from within a
// call to the transport. A method that blocks delays only what its comment mentions, and Close,
// which waits for all.
type Handler interface {
	// Admit returns nil if a member may send; ErrRemoved, ErrLost or an error that wraps ErrVersion
	// if it never may; or another error if it may not now (the other side will retry). A member may
	// be unknown here because it has just joined. Called when a stream begins, and after each
	// Update that changed something.
	Admit(v Visitor) error
	// Met reports that another member has admitted this one, and with which incarnation it
	// answered. If it returns an error, as Admit does, the connection ends.
	Met(member, incarnation uint64) error
	// Expelled reports that another member will never admit this one again, because its Admit
	// returned ErrRemoved, ErrLost or ErrVersion, or because another live process of this member is
	// connected there (ErrCopy). It is called once for each connection that was rejected or ended
	// for such a reason; dialing continues, slowly.
	Expelled(by uint64, why error)

	// Receive gets one message. Calls for one sender are sequential, in the order of sending.
	// Blocking is back-pressure: the sender's queue fills, then drops. The handler may keep data.
	Receive(from uint64, data []byte)
	// Unreachable reports that messages to member may have been lost: its connection broke, or its
	// queue overflowed. One call may stand for many messages.
	Unreachable(member uint64)
	// Gone reports that a member's process has certainly ended: a connection to or from it broke
	// and a new one was refused at each of its URLs, or another process answers with its ID. Called
	// once per process. Messages that the dead process sent may still be received afterwards; those
	// of a new process are received later.
	Gone(member uint64)

	// Copied reports that two processes of a member are alive, one of which was refused: its data
	// directory was copied. The member may be this one, if another member says so.
	Copied(member uint64)
	// Claimed reports that a member of another cluster takes this one for the member of its own
	// cluster with the same ID.
	Claimed(cluster, by uint64)

	// Snapshot receives one snapshot: header is the sender's, and next returns the chunks, which
	// the handler may keep, until io.EOF; any other error means that the rest will not arrive. The
	// returned error goes to the sender as a remoteError; nil means that the snapshot is safe here.
	// ctx ends with the connection and with Close.
	Snapshot(ctx context.Context, from uint64, header []byte, next func() ([]byte, error)) error
	// Describe returns the list of members, for a caller that may not be one yet.
	Describe() []byte
}

// Config configures New. Cluster, Self, Process, Formats, Version and Handler are required.
type Config struct {
	// Cluster and Self are the IDs of the cluster and of this member. A stream from another
	// cluster, or for another member, is refused with a reason.
	Cluster, Self uint64
	// Process is a random number other than 0 that distinguishes this process from earlier ones of
	// the same member.
	Process uint64
	// Incarnation is a random number that distinguishes this member's data from earlier data. It is
	// passed to the other side's Admit.
	Incarnation uint64
	// Formats are those that this process supports.
	Formats Formats
	// Version returns the cluster version of this member's state, and the index of the entry that
	// decided it. Both are passed to the other side's Admit.
	Version func() (version uint8, decided uint64)
	// Way configures outgoing connections. The listening side is up to the caller of Serve.
	Way     Way
	Handler Handler
	// RoundTrip is called with the time that a connected member took to answer, about once a second
	// for each, and after Ask. Optional.
	RoundTrip func(member uint64, took time.Duration)
	// Panics recovers streams that panic. With nil the process ends.
	Panics *listen.Panics
	// Logger logs connections that come and go. Optional.
	Logger *slog.Logger
}

// A Way configures connections to other members.
type Way struct {
	// TLS is for https and unixs URLs (listen.TLS.Client makes it); nil for none.
	TLS *tls.Config
	// Dial, if set, replaces [net.Dialer.DialContext].
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Token, if not empty, is a secret that all members have: see token.go. In Config, other
	// members must prove that they have it, too.
	Token []byte
}

// Transport is one member's end of all connections. Its methods are safe for concurrent use.
type Transport struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	server *grpc.Server
	wg     sync.WaitGroup // goroutines that are not gRPC's
	// Pauses between log lines about calls without a proof, and about broken frames.
	noProof, badFrame rate.Sometimes
	linePauses        linePauses

	mu     sync.RWMutex
	closed bool
	// listed holds the URLs of the others as passed to Update, and own those of this member.
	listed map[uint64][]url.URL
	own    []string
	// incarnations holds the others' incarnations as passed to Update.
	incarnations map[uint64]uint64
	// links holds all listed members, and others that send to this one and have sent their URLs.
	links map[uint64]*link
	// inbound holds the newest stream of each member that sends to this one, with or without a
	// link.
	inbound map[uint64]*inbound
}

// New returns a transport that has no members (see [Transport.Update]) and receives nothing (see
// [Transport.Serve]). It panics if a required field of the configuration is missing.
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
		links:    make(map[uint64]*link),
		inbound:  make(map[uint64]*inbound),
		noProof:  rate.Sometimes{Interval: logPause},
		badFrame: rate.Sometimes{Interval: logPause},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.server = grpc.NewServer(t.serverOptions()...)
	t.server.RegisterService(&service, t)
	return t
}

// Update replaces the set of other members. It is cheap when nothing has changed. Self may be among
// them: its URLs are sent to the members that this one calls. Connections to members that left, or
// whose URLs changed, are closed, as are those from members that Admit no longer admits. Update
// does not wait for any of that.
//
// A member that is not in the set, or has other URLs than in the set, can be sent messages while it
// sends, if Admit admits it, because it has sent its URLs. Otherwise a member that was down while
// the membership changed could not answer the leader that would bring it up to date.
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
			t.own = listen.URLTexts(p.URLs)
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

// relinkLocked makes missing links, and ends superfluous ones.
func (t *Transport) relinkLocked() {
	if t.closed {
		return
	}
	urls := make(map[uint64][]url.URL, len(t.listed)+len(t.inbound))
	maps.Copy(urls, t.listed)
	for id, in := range t.inbound {
		known := listen.URLTexts(urls[id])
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

// isListed reports whether Update listed the member.
func (t *Transport) isListed(member uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.listed[member] != nil
}

// Send adds m to the queue of a member and never blocks. If the queue is full, m is dropped and
// Unreachable called. While the member is not connected, only the newest few messages are kept.
// Messages to unknown members are dropped.
func (t *Transport) Send(to uint64, m Message) {
	if l := t.link(to); l != nil {
		l.send(m)
	}
}

// Serve accepts connections on l until Close or until l is closed, then returns nil, or until l
// fails. l yields connections with a completed TLS handshake, as listen.Mux.GRPC does, or plain
// ones. Serve may be called for several listeners.
func (t *Transport) Serve(l net.Listener) error {
	err := t.server.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Since returns the time since which this member has been connected to another; ok is false without
// a connection.
func (t *Transport) Since(member uint64) (since time.Time, ok bool) {
	l := t.link(member)
	if l == nil {
		return time.Time{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, !l.since.IsZero()
}

// Close ends all connections, closes the listeners, and waits until every goroutine has ended and
// no method of the handler runs any more. A handler that blocks in Receive must return when its
// owner stops. Queued messages are dropped. Close may be called again.
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
