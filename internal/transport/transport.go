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

// These errors are returned by several methods.
var (
	// ErrRemoved means that a member is no longer part of the cluster. Handler.Admit returns it to
	// exclude a member permanently. SendSnapshot returns it when the other side reports that this
	// member was removed.
	ErrRemoved = errors.New("transport: the member was removed from the cluster")
	// ErrVersion means that a member does not support the cluster version.
	ErrVersion = errors.New("transport: the member does not support the cluster version")
	// ErrLost means that the cluster has recorded a different incarnation of the member, so the
	// member's data has been lost, along with its promises. Handler.Admit can return it as well.
	ErrLost = errors.New("transport: the member has restarted without its data")
	// ErrCopy means that another process of the same member is running.
	ErrCopy = errors.New("transport: another process with this member's identity is running")
	// errUnknown means that the last Update did not list the member.
	errUnknown = errors.New("transport: no such member")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("transport: closed")
)

// A remoteError is an error that the other side returned over a working connection.
type remoteError struct{ Text string }

// Error implements error.
func (e *remoteError) Error() string { return "transport: the other member responded: " + e.Text }

// MaxMessage is the maximum size of a message, and of a chunk of a snapshot, in bytes. A larger
// message is dropped and logged.
const MaxMessage = 64 << 20

// A Message is anything that can be encoded. The transport encodes it on its own goroutine, once
// for each member it is sent to, so the message must not change after Send.
type Message interface {
	// Size returns approximately the number of bytes that AppendTo will append. It is used to bound
	// queues. Send calls it, so it should be cheap.
	Size() int
	// AppendTo appends the encoding to b and returns the result.
	AppendTo(b []byte) []byte
}

// A Peer is another member and its URLs.
type Peer struct {
	ID   uint64
	URLs []url.URL
	// Incarnation is the known incarnation, or 0. It is used only to detect a change, after which
	// Admit may decide differently.
	Incarnation uint64
}

// A Visitor is a member that opens a stream. It consists of the member's ID, the incarnation of its
// data, the formats that its process supports, the cluster version of its state, and the index of
// the entry that decided this version.
type Visitor struct {
	Member, Incarnation uint64
	Formats             Formats
	Version             uint8
	Decided             uint64
}

// A Handler receives messages and events. Its methods are called concurrently, but never from
// within a call to the transport. A method that blocks delays only what its comment mentions. It
// also delays Close, which waits for all methods.
type Handler interface {
	// Admit returns nil if a member is allowed to send. It returns ErrRemoved, ErrLost or an error
	// that wraps ErrVersion if the member will never be allowed to send. Any other error means that
	// the member is not allowed to send now. In that case, the other side will retry. The member
	// may be unknown here because it has just joined. Admit is called when a stream begins, and
	// after each Update that changed something.
	Admit(v Visitor) error
	// Met reports that another member has admitted this one, and the incarnation that member
	// answered with. If Met returns an error, as Admit can, the connection ends.
	Met(member, incarnation uint64) error
	// Expelled reports that another member will never admit this one again. Either its Admit
	// returned ErrRemoved, ErrLost or ErrVersion, or another live process of this member is
	// connected to it (ErrCopy). Expelled is called once for each connection that was rejected or
	// ended for such a reason. Dialing continues, slowly.
	Expelled(by uint64, why error)

	// Receive receives one message. Calls for the same sender are sequential, in the order the
	// messages were sent. Blocking creates back-pressure: the sender's queue fills up, and further
	// messages are dropped. The handler can retain data.
	Receive(from uint64, data []byte)
	// Unreachable reports that messages to member may have been lost, because its connection broke
	// or its queue overflowed. One call can cover many messages.
	Unreachable(member uint64)
	// Gone reports that a member's process has definitely ended. Either a connection to or from it
	// broke and a new one was refused at each of its URLs, or another process answers with its ID.
	// Gone is called once per process. Messages that the dead process sent may still be received
	// afterwards. Messages from a new process are received only later.
	Gone(member uint64)

	// Copied reports that two processes of a member are alive, which means that its data directory
	// was copied. One of the processes was rejected. The member can be this one, if another member
	// reports it.
	Copied(member uint64)
	// Claimed reports that a member of another cluster mistakes this member for the one with the
	// same ID in its own cluster.
	Claimed(cluster, by uint64)

	// Snapshot receives one snapshot. header is the sender's header. next returns the chunks, which
	// the handler can retain, until io.EOF. Any other error means that the rest will not arrive.
	// The error that Snapshot returns is sent to the sender as a remoteError. nil means that the
	// snapshot is stored safely here. ctx ends with the connection and with Close.
	Snapshot(ctx context.Context, from uint64, header []byte, next func() ([]byte, error)) error
	// Describe returns the list of members. The caller may not be a member yet.
	Describe() []byte
}

// Config configures New. Cluster, Self, Process, Formats, Version and Handler are required.
type Config struct {
	// Cluster and Self are the IDs of the cluster and of this member. A stream from another
	// cluster, or addressed to another member, is rejected with a reason.
	Cluster, Self uint64
	// Process is a random number other than 0 that distinguishes this process from earlier
	// processes of the same member.
	Process uint64
	// Incarnation is a random number that distinguishes this member's data from any earlier data.
	// It is passed to the other side's Admit.
	Incarnation uint64
	// Formats is the range of formats that this process supports.
	Formats Formats
	// Version returns the cluster version of this member's state, and the index of the entry that
	// decided it. Both are passed to the other side's Admit.
	Version func() (version uint8, decided uint64)
	// Way configures outgoing connections. The caller of Serve configures the listening side.
	Way     Way
	Handler Handler
	// RoundTrip is called with the time that a connected member took to answer. This happens about
	// once a second for each member, and after Ask. Optional.
	RoundTrip func(member uint64, took time.Duration)
	// Panics recovers from panics in streams. If it is nil, such a panic ends the process.
	Panics *listen.Panics
	// Logger logs when connections begin and end. Optional.
	Logger *slog.Logger
}

// A Way configures connections to other members.
type Way struct {
	// TLS is used for https and unixs URLs (listen.TLS.Client creates it). It is nil if there are
	// no such URLs.
	TLS *tls.Config
	// Dial replaces [net.Dialer.DialContext] if it is set.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Token, if not empty, is a secret that all members have; see token.go. In Config, it requires
	// other members to prove that they have it as well.
	Token []byte
}

// Transport is one member's end of all connections. Its methods are safe for concurrent use.
type Transport struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context // canceled by Close
	cancel context.CancelFunc
	server *grpc.Server
	wg     sync.WaitGroup // all goroutines except gRPC's
	// These limit log lines about calls without a proof, and about broken frames.
	noProof, badFrame rate.Sometimes
	linePauses        linePauses

	mu     sync.RWMutex
	closed bool
	// listed maps the other members to their URLs, as passed to Update. own holds this member's
	// URLs.
	listed map[uint64][]url.URL
	own    []string
	// incarnations maps the other members to their incarnations, as passed to Update.
	incarnations map[uint64]uint64
	// links contains all listed members, as well as others that send to this member and have sent
	// their URLs.
	links map[uint64]*link
	// inbound contains the newest stream from each member that sends to this one, whether or not
	// there is a link to that member.
	inbound map[uint64]*inbound
}

// New returns a transport that has no members yet (see [Transport.Update]) and does not receive yet
// (see [Transport.Serve]). It panics if a required field of the configuration is missing.
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

// Update replaces the set of other members. It is cheap if nothing has changed. The set can include
// Self, whose URLs are then sent to the members that this one calls. Update closes connections to
// members that left or whose URLs changed, and connections from members that Admit no longer
// admits. It does not wait for any of that.
//
// While an admitted member sends to this one, it can also be sent messages, because it has sent its
// URLs. It need not be in the set, and can have different URLs there. Without this rule, a member
// that was down while the membership changed could not answer the leader that would bring it up to
// date.
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
	t.wg.Go(t.recheckPeers)
}

// relinkLocked creates missing links and ends superfluous ones.
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

// recheckPeers ends the streams of members that are no longer allowed to send.
func (t *Transport) recheckPeers() {
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

// isListed reports whether the member was in the last Update.
func (t *Transport) isListed(member uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.listed[member] != nil
}

// Send adds m to a member's queue. It never blocks. If the queue is full, m is dropped and
// Unreachable is called. While the member is not connected, only the newest few messages are kept.
// Messages to unknown members are dropped.
func (t *Transport) Send(to uint64, m Message) {
	if l := t.link(to); l != nil {
		l.send(m)
	}
}

// Serve accepts connections on l. It returns nil after Close or after l is closed, and an error if
// l fails. The connections from l are plain or have completed a TLS handshake, like those from
// listen.Mux.GRPC. Serve can be called for several listeners.
func (t *Transport) Serve(l net.Listener) error {
	err := t.server.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Since returns when the current connection to another member began. ok is false if there is no
// connection.
func (t *Transport) Since(member uint64) (since time.Time, ok bool) {
	l := t.link(member)
	if l == nil {
		return time.Time{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, !l.since.IsZero()
}

// Close ends all connections, closes the listeners, and waits until all goroutines and all methods
// of the handler have returned. A handler that blocks in Receive must return when its owner stops.
// Queued messages are dropped. Close can be called more than once.
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
