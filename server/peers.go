package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/transport"
	"leasehold.dev/lease"
)

// errRemoved is how the member learns that it is to stop for good. Run returns
// nil then: it was asked to.
var errRemoved = errors.New("server: this member was removed from the cluster")

// peers connects the core with the other members. Its methods as a
// transport.Handler run on the transport's goroutines, and leave what comes
// in the core's inbox.
type peers struct {
	*transport.Transport
	core    *core
	cluster uint64
	member  uint64
	removed context.CancelCauseFunc
	log     *slog.Logger
	// known are those of whom this member was told when it joined, for as long
	// as it has no state that names any.
	known []fsm.Member
	// told are those of the last update. The core's, once it runs.
	told []fsm.Member

	wg sync.WaitGroup // snapshots being sent
}

var _ transport.Handler = (*peers)(nil)

// newPeers returns the connections of a member, none of which is open yet.
func newPeers(s *Server, conf *tls.Config, known []fsm.Member) *peers {
	p := &peers{
		core: s.core, cluster: s.node.cluster, member: s.node.member,
		log: s.cfg.Logger, known: known, removed: func(error) {},
	}
	p.Transport = transport.New(transport.Config{
		Cluster: p.cluster, Self: p.member, Process: rand.Uint64() | 1,
		TLS: conf, Handler: p, Logger: s.cfg.Logger,
	})
	return p
}

// farewell is for how long the connections with a member that was removed stay:
// the last thing that it is sent is that its removal is committed, and one who asked
// it for that waits for the answer.
const farewell = time.Second

// update tells the transport who the members are. Those who were members until now
// are kept for a while.
func (p *peers) update(members []fsm.Member) {
	if len(members) == 0 {
		members = p.known
	}
	leaving := slices.DeleteFunc(p.told, func(m fsm.Member) bool {
		return slices.ContainsFunc(members, func(n fsm.Member) bool { return n.ID == m.ID })
	})
	p.told = slices.Clone(members)
	if len(leaving) > 0 {
		members = slices.Concat(members, leaving)
		time.AfterFunc(farewell, func() {
			p.core.inbox.task(func() { p.update(p.core.view.Load().Members) })
		})
	}
	list := make([]transport.Peer, 0, len(members))
	for _, m := range members {
		peer := transport.Peer{ID: m.ID}
		for _, text := range m.PeerURLs {
			if u, err := url.Parse(text); err == nil {
				peer.URLs = append(peer.URLs, *u)
			}
		}
		list = append(list, peer)
	}
	p.Update(list)
}

// send sends what a step of the core brought about for others. The core calls it.
func (p *peers) send(messages []*replica.Message) {
	for _, m := range messages {
		if m.Raft.GetType() == raftpb.MsgSnap {
			p.sendSnapshot(m)
			continue
		}
		p.Send(m.To, m)
	}
}

// close ends all connections. The core must have stopped, so that nothing
// that still arrives waits for it.
func (p *peers) close() {
	_ = p.Close()
	p.wg.Wait()
}

// Admit implements transport.Handler.
func (p *peers) Admit(member uint64) error {
	if slices.Contains(p.core.view.Load().Removed, member) {
		return transport.ErrRemoved
	}
	return nil
}

// Receive implements transport.Handler.
func (p *peers) Receive(from uint64, data []byte) {
	m, err := replica.DecodeMessage(from, p.member, data)
	if err != nil {
		p.log.Error("dropped a message that does not decode", "from", fmt.Sprintf("%x", from),
			"error", err)
		return
	}
	p.core.inbox.putMessage(m)
}

// connected tells the replica how long the connections to other members stand.
// The core calls it.
func (p *peers) connected(now lease.Instant) {
	for _, m := range p.core.view.Load().Members {
		if since, ok := p.Since(m.ID); ok {
			p.core.replica.Connected(m.ID, now-lease.Instant(time.Since(since).Milliseconds()))
		}
	}
}

// Unreachable implements transport.Handler.
func (p *peers) Unreachable(member uint64) {
	p.core.inbox.task(func() { p.core.replica.Unreachable(member) })
}

// Gone implements transport.Handler.
func (p *peers) Gone(member uint64) {
	p.core.inbox.task(func() { p.core.replica.Gone(member) })
}

// Removed implements transport.Handler. A member that has not applied its own
// removal, because nobody sends it anything any more, learns of it so.
func (p *peers) Removed(by uint64) {
	p.log.Warn("another member says that this one was removed", "member", fmt.Sprintf("%x", by))
	p.removed(errRemoved)
}

// description is what a member tells one that wants to join.
type description struct {
	Cluster uint64
	Members []fsm.Member
}

// Describe implements transport.Handler.
func (p *peers) Describe() []byte {
	text, err := json.Marshal(description{p.cluster, p.core.view.Load().Members})
	if err != nil {
		panic("server: encode the members: " + err.Error())
	}
	return text
}

// peerTLS returns the configurations for listening and for dialing, nil for
// none.
func peerTLS(c Config) (accept, dial *tls.Config, err error) {
	t, err := c.PeerTLS.certified(c.PeerAutoTLSDir(), c.URLs.ListenPeer)
	if err != nil || !t.Enabled() {
		return nil, nil, err
	}
	if accept, err = t.Server(); err != nil {
		return nil, nil, err
	}
	dial, err = t.Client()
	return accept, dial, err
}

// wrongPort answers who opens a peer URL in a browser.
var wrongPort = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "leasehold: this port is for other members; clients use the client URLs",
		http.StatusNotFound)
})

// listenPeers opens the peer URLs, all or none, and serves them.
func (s *Server) listenPeers(ctx context.Context, g *group, fail context.CancelCauseFunc) error {
	ports, err := openPorts(ctx, s.cfg.URLs.ListenPeer, s.peerTLS, usePeers)
	if err != nil {
		return fmt.Errorf("listen for other members: %w", err)
	}
	s.peerMux = listen.NewMux(listen.MuxOptions{Logger: s.cfg.Logger})
	pages := &http.Server{Handler: wrongPort, ReadHeaderTimeout: handshakeTimeout}
	g.start(fail, func() error { return closedIsFine(s.peers.Serve(s.peerMux.GRPC())) })
	g.start(fail, func() error { return closedIsFine(pages.Serve(s.peerMux.HTTP())) })
	for _, o := range ports {
		g.start(fail, func() error { return closedIsFine(s.peerMux.Serve(o.Listener, o.tls)) })
	}
	return nil
}
