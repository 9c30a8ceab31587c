package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"golang.org/x/time/rate"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/internal/member/timing"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// others holds the settings for reaching the other members, and the members themselves if the state
// does not have them yet.
type others struct {
	way    transport.Way
	known  []fsm.Member
	panics *listen.Panics
}

// peers connects the core with the other members. Its transport.Handler methods run on the
// transport's goroutines, and put their input into the core's inbox.
type peers struct {
	*transport.Transport
	*identity.Peers
	coreParts
	member        uint64
	machineConfig fsm.Config // for received snapshots
	log           *slog.Logger
	// known are the members that this one learned of when it joined, until it has a state with
	// members.
	known []fsm.Member
	// last is the list of members of the last update. Once the core runs, only the core uses it.
	last []fsm.Member
	// resends is the last pause before a snapshot was sent again, by member. Only the core uses it.
	resends map[uint64]time.Duration
	// undecodable limits log lines about messages that cannot be decoded.
	undecodable rate.Sometimes

	wg sync.WaitGroup // snapshots being sent
}

var _ transport.Handler = (*peers)(nil)

// coreParts are the parts of the core that peers uses.
type coreParts struct {
	inbox   *inbox
	replica *replica.Replica // for tasks, and for calls by the core
	snap    *snapshotter
	disk    *storage.Disk
	view    func() *fsm.View
	metrics *metrics.Metrics
	tracer  *timing.Tracer
}

// newPeers returns the connections of a member; none is open yet. stop stops the member for good.
func newPeers(
	cfg Config, id storage.Identity, o others, c coreParts, stop func(error),
) *peers {
	p := &peers{
		coreParts: c, machineConfig: machineConfig(cfg), member: id.Member, log: cfg.Logger,
		known: o.known, resends: make(map[uint64]time.Duration),
		Peers: identity.NewPeers(identity.PeersConfig{
			Disk: c.disk, Dir: cfg.DataDir, Logger: cfg.Logger, View: c.view,
			Versions: version.Spoken, Stop: stop,
		}),
		undecodable: rate.Sometimes{Interval: time.Second},
	}
	p.Transport = transport.New(transport.Config{
		Cluster: id.Cluster, Self: p.member, Process: rand.Uint64() | 1,
		Incarnation: p.Incarnation(), Formats: transport.Formats(version.Spoken),
		Version: p.clusterVersion, Way: o.way,
		Handler: p, Logger: cfg.Logger, Panics: o.panics,
		RoundTrip: p.answered,
	})
	return p
}

// farewell is how long the connections with a removed member are kept. The last message to it
// reports that its removal is committed, and a client that requested the removal through it waits
// for the answer.
const farewell = time.Second

// update passes the members to the transport. Removed members are kept for a while.
func (p *peers) update(members []fsm.Member) {
	if len(members) == 0 {
		members = p.known
	}
	leaving := slices.DeleteFunc(p.last, func(m fsm.Member) bool {
		return slices.ContainsFunc(members, func(n fsm.Member) bool { return n.ID == m.ID })
	})
	p.last = slices.Clone(members)
	if len(leaving) > 0 {
		members = slices.Concat(members, leaving)
		time.AfterFunc(farewell, func() {
			p.inbox.task(func() {
				p.update(p.view().Members)
				p.metrics.Forget(leaving)
			})
		})
	}
	list := make([]transport.Peer, 0, len(members))
	for _, m := range members {
		peer := transport.Peer{ID: m.ID, Incarnation: m.Incarnation}
		for _, text := range m.PeerURLs {
			if u, err := url.Parse(text); err == nil {
				peer.URLs = append(peer.URLs, *u)
			}
		}
		list = append(list, peer)
	}
	p.Update(list)
}

// send sends the messages of a step. The core calls it.
func (p *peers) send(messages []*replica.Message) {
	for _, m := range messages {
		if m.Raft.GetType() == raftpb.MsgSnap {
			p.sendSnapshot(m)
			continue
		}
		p.Send(m.To, m)
	}
}

// close ends all connections. The core must have stopped, so that no goroutine still waits for it.
func (p *peers) close() {
	_ = p.Close()
	p.wg.Wait()
}

// Receive implements transport.Handler.
func (p *peers) Receive(from uint64, data []byte) {
	if !p.Assembled() {
		return // Raft sends it again
	}
	m, err := replica.DecodeMessage(from, p.member, data)
	if err != nil {
		p.undecodable.Do(func() {
			p.log.Error("dropped a message that this release cannot read",
				"from", fmt.Sprintf("%x", from), "error", err)
		})
		return
	}
	p.tracer.Arrived(m)
	p.inbox.putMessage(m)
}

// connected reports to the replica how long other members have been connected. The core calls it.
func (p *peers) connected(now lease.Instant) {
	for _, m := range p.view().Members {
		if since, ok := p.Since(m.ID); ok {
			p.replica.Connected(m.ID, now-lease.Instant(time.Since(since).Milliseconds()))
		}
	}
}

// answered records how long a member took to answer.
func (p *peers) answered(member uint64, took time.Duration) {
	p.metrics.Answered(member, took)
	ms := lease.TTL((took + time.Millisecond - 1) / time.Millisecond)
	p.inbox.task(func() { p.replica.Answered(member, ms) })
}

// Unreachable implements transport.Handler.
func (p *peers) Unreachable(member uint64) {
	p.inbox.task(func() { p.replica.Unreachable(member) })
}

// Gone implements transport.Handler.
func (p *peers) Gone(member uint64) {
	p.inbox.task(func() { p.replica.Gone(member) })
}

// clusterVersion returns what this member reports about the cluster version when it opens a stream.
func (p *peers) clusterVersion() (number uint8, decided uint64) {
	v := p.view().Version
	return v.Number, v.Decided
}

// peerWay returns the TLS configuration for listening, nil for none, and the settings for reaching
// other members.
func peerWay(c Config) (accept *tls.Config, way transport.Way, err error) {
	way.Dial = c.host.Dialer()
	if way.Token, err = c.peerToken(); err != nil {
		return nil, way, err
	}
	t, err := c.PeerTLS.certified(c.PeerAutoTLSDir(), c.URLs.ListenPeer)
	if err != nil || !t.Enabled() {
		return nil, way, err
	}
	if accept, err = t.Server(); err != nil {
		return nil, way, err
	}
	way.TLS, err = t.Client()
	return accept, way, err
}

// minToken is the minimum length of a token: 128 random bits in hexadecimal. A program that can
// connect sees an HMAC of it, and can guess tokens offline.
const minToken = 32

// peerToken reads the token, nil if there is none. Surrounding white space is ignored.
func (c Config) peerToken() ([]byte, error) {
	if c.PeerTokenFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.PeerTokenFile)
	if err != nil {
		return nil, fmt.Errorf("%w: read --peer-token-file: %w", ErrConfig, err)
	}
	token := bytes.TrimSpace(text)
	if len(token) < minToken {
		return nil, fmt.Errorf("%w: the token in %s has %d bytes and needs %d, so that it cannot "+
			"be guessed; make one with: head -c 32 /dev/urandom | base64",
			ErrConfig, c.PeerTokenFile, len(token), minToken)
	}
	return token, nil
}

// wrongPort answers requests of browsers at a peer URL.
var wrongPort = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "leasehold: this port is for other members; clients use the client URLs",
		http.StatusNotFound)
})

// listenPeers opens all peer URLs or none, and serves them until mux is closed.
func (s *Server) listenPeers(
	ctx context.Context, mux *listen.Mux, g *group, fail context.CancelCauseFunc,
) error {
	ports, err := s.openPorts(ctx, s.cfg.URLs.ListenPeer, s.peerTLS, usePeers)
	if err != nil {
		return fmt.Errorf("listen for other members: %w", err)
	}
	pages := &http.Server{Handler: wrongPort, ReadHeaderTimeout: handshakeTimeout}
	g.start(fail, func() error { return closedIsFine(s.peers.Serve(mux.GRPC())) })
	g.start(fail, func() error { return closedIsFine(pages.Serve(mux.HTTP())) })
	for _, o := range ports {
		l := s.limits.peers.Listener(o.Listener)
		g.start(fail, func() error { return closedIsFine(mux.Serve(l, o.tls)) })
	}
	return nil
}
