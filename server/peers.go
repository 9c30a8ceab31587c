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

// peerSettings contains the settings for reaching the other members. If the state does not contain
// the members yet, it also contains the members themselves.
type peerSettings struct {
	way    transport.Way
	known  []fsm.Member
	panics *listen.Panics
}

// peers connects the core with the other members. Its transport.Handler methods run in the
// transport's goroutines, and put their input into the core's inbox.
type peers struct {
	*transport.Transport
	*identity.Peers
	coreParts
	member        uint64
	machineConfig fsm.Config // for received snapshots
	log           *slog.Logger
	// known contains the members that were reported when this member joined. It is used until the
	// state contains members.
	known []fsm.Member
	// last is the member list of the last update. Once the core is running, only the core uses it.
	last []fsm.Member
	// resends maps each member to the last pause before a snapshot was resent to it. Only the core
	// uses it.
	resends map[uint64]time.Duration
	// undecodable limits how often messages that cannot be decoded are logged.
	undecodable rate.Sometimes

	wg sync.WaitGroup // snapshots being sent
}

var _ transport.Handler = (*peers)(nil)

// coreParts are the parts of the core used by peers.
type coreParts struct {
	inbox   *inbox
	replica *replica.Replica // used by tasks and in calls made by the core
	snap    *snapshotter
	disk    *storage.Disk
	view    func() *fsm.View
	metrics *metrics.Metrics
	tracer  *timing.Tracer
}

// newPeers returns the connections of a member, none of which is open yet. The function stop stops
// the member permanently.
func newPeers(
	cfg Config, id storage.Identity, o peerSettings, c coreParts, stop func(error),
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

// removalLinger is how long connections to a removed member are kept open. The last message tells
// the member that its removal has been committed. A client that requested the removal through that
// member is waiting for the response.
const removalLinger = time.Second

// update passes the members to the transport. It keeps removed members for a while.
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
		time.AfterFunc(removalLinger, func() {
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

// send sends the messages of a step. It is called by the core.
func (p *peers) send(messages []*replica.Message) {
	for _, m := range messages {
		if m.Raft.GetType() == raftpb.MsgSnap {
			p.sendSnapshot(m)
			continue
		}
		p.Send(m.To, m)
	}
}

// close ends all connections. The core must have stopped already, so that no goroutine is waiting
// for it.
func (p *peers) close() {
	_ = p.Close()
	p.wg.Wait()
}

// Receive implements transport.Handler.
func (p *peers) Receive(from uint64, data []byte) {
	if !p.MayVote() {
		return // Raft will resend it
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

// connected reports to the replica how long other members have been connected. It is called by the
// core.
func (p *peers) connected(now lease.Instant) {
	for _, m := range p.view().Members {
		if since, ok := p.Since(m.ID); ok {
			p.replica.Connected(m.ID, now-lease.Instant(time.Since(since).Milliseconds()))
		}
	}
}

// answered records how long a member took to respond.
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

// clusterVersion returns the cluster version that this member reports when it opens a stream.
func (p *peers) clusterVersion() (number uint8, decided uint64) {
	v := p.view().Version
	return v.Number, v.Decided
}

// peerWay returns the TLS configuration for listening, or nil if there is none, and the settings
// for reaching other members.
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
// connect sees an HMAC of the token, and could try to guess the token offline.
const minToken = 32

// peerToken reads the token. It returns nil if there is none. It trims surrounding white space.
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
		return nil, fmt.Errorf("%w: the token in %s has %d bytes, but needs at least %d so that it "+
			"cannot be guessed; generate one with: head -c 32 /dev/urandom | base64",
			ErrConfig, c.PeerTokenFile, len(token), minToken)
	}
	return token, nil
}

// wrongPort responds to browsers that send requests to a peer URL.
var wrongPort = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "leasehold: this port is for other members; clients use the client URLs",
		http.StatusNotFound)
})

// listenPeers opens either all peer URLs or none of them, and serves them until mux is closed.
func (s *Server) listenPeers(
	ctx context.Context, mux *listen.Mux, g *group, fail context.CancelCauseFunc,
) error {
	ports, err := s.openPorts(ctx, s.cfg.URLs.ListenPeer, s.peerTLS, usePeers)
	if err != nil {
		return fmt.Errorf("listen for other members: %w", err)
	}
	pages := &http.Server{Handler: wrongPort, ReadHeaderTimeout: handshakeTimeout}
	g.start(fail, func() error { return ignoreClosed(s.peers.Serve(mux.GRPC())) })
	g.start(fail, func() error { return ignoreClosed(pages.Serve(mux.HTTP())) })
	for _, o := range ports {
		l := s.limits.peers.Listener(o.Listener)
		g.start(fail, func() error { return ignoreClosed(mux.Serve(l, o.tls)) })
	}
	return nil
}
