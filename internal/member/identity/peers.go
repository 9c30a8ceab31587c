package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/internal/version"
)

// newIncarnation returns a random number for a new data directory.
func newIncarnation() uint64 { return rand.Uint64() | 1 }

// Peers recognizes other members by their data, and lets them recognize this member.
//
// If a member loses its data, it returns under its old ID with a different incarnation. Members
// that know the old incarnation then reject its messages. The replicated state contains the
// incarnations of members that have served. Until there is such a state, members record the
// incarnations that they encounter. A founder stays passive until all other founders have recorded
// it, or until a majority has and the rest are unreachable. So founders with empty directories do
// not bootstrap a new cluster while a reachable member remembers an earlier one.
type Peers struct {
	c        PeersConfig
	self     storage.Identity
	complete atomic.Bool // whether this member takes part

	copied atomic.Uint64 // number of times that a process was rejected as a copy of a member
	// when a copy of this member was last rejected, in milliseconds since 1970
	lastCopied atomic.Int64
	// Rate limits for log lines about copies of this member and about other copies.
	ownCopyLogged, copiesLogged rate.Sometimes

	mu      sync.Mutex // guards the fields below, and the writing of noted to disk
	noted   storage.Peers
	missing map[uint64]string // names of the founders that have not recorded this member, by ID
	spare   int               // how many founders can still be missing at the end of the wait
	waited  bool              // whether the wait is over
	logged  map[uint64]bool   // members and clusters that have been logged
}

// PeersConfig configures Peers.
type PeersConfig struct {
	Disk   *storage.Disk
	Dir    string // directory of the disk
	Logger *slog.Logger
	// View returns the newest applied state.
	View func() *fsm.View
	// Versions are the cluster versions that this member supports.
	Versions version.Range
	// Stop stops this member permanently. The argument is the reason.
	Stop func(error)
}

// NewPeers returns the peers of a member.
func NewPeers(c PeersConfig) *Peers {
	id, _ := c.Disk.Identity()
	p := &Peers{
		c: c, self: id, noted: c.Disk.Peers(), missing: make(map[uint64]string),
		logged:        make(map[uint64]bool),
		ownCopyLogged: rate.Sometimes{Interval: copyPause},
		copiesLogged:  rate.Sometimes{Interval: copyPause},
	}
	if p.noted.Incarnations == nil {
		p.noted.Incarnations = make(map[uint64]uint64)
	}
	for _, m := range c.View().Members {
		if m.ID != id.Member && !p.noted.Assembled {
			p.missing[m.ID] = m.Name
		}
	}
	p.spare = len(p.missing) / 2 // 1 of 3 founders, or 1 of 4
	p.complete.Store(len(p.missing) == 0)
	return p
}

// Incarnation returns the incarnation of this member's data.
func (p *Peers) Incarnation() uint64 { return p.self.Incarnation }

// note returns the recorded incarnation of a member. If none is recorded, it records the given one.
func (p *Peers) note(member, incarnation uint64) (known uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.noted.Incarnations[member]; known != 0 || incarnation == 0 {
		return known, nil
	}
	p.noted.Incarnations[member] = incarnation
	if err := p.c.Disk.SavePeers(p.noted); err != nil {
		delete(p.noted.Incarnations, member)
		return 0, err
	}
	return incarnation, nil
}

// notedBy records that another founder has recorded this member.
func (p *Peers) notedBy(member uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.missing, member)
	return p.takePartLocked()
}

// recognize returns an error if a member's incarnation differs from the recorded one.
func (p *Peers) recognize(member, incarnation uint64) error {
	m, ok := p.c.View().Member(member)
	if !ok {
		// a member that is not in the state does not take part yet, and is checked again later
		return nil
	}
	known := m.Incarnation
	if known == 0 {
		var err error
		if known, err = p.note(member, incarnation); err != nil {
			return err
		}
	}
	if known != incarnation {
		return fmt.Errorf("member %x returned without its data: %w",
			member, transport.ErrLost)
	}
	return nil
}

// Admit implements transport.Handler.
func (p *Peers) Admit(v transport.Visitor) error {
	member := v.Member
	if slices.Contains(p.c.View().Removed, member) {
		return transport.ErrRemoved
	}
	err := p.recognize(member, v.Incarnation)
	if errors.Is(err, transport.ErrLost) && p.shouldLog(member) {
		p.c.Logger.Error("rejected a member that returned with different data; replace it with "+
			"leasehold serve --join --replace",
			"member", fmt.Sprintf("%x", member))
	}
	if err == nil {
		err = p.checkVisitor(v)
	}
	return err
}

// Met implements transport.Handler.
func (p *Peers) Met(member, incarnation uint64) error {
	err := p.recognize(member, incarnation)
	if err == nil {
		err = p.notedBy(member)
	}
	return err
}

// Expelled implements transport.Handler. It notifies a member of its removal if the member missed
// the removal itself.
func (p *Peers) Expelled(by uint64, why error) {
	v := p.c.View()
	_, known := v.Member(by)
	if errors.Is(why, transport.ErrLost) && !known && len(v.Members) > 0 && p.MayVote() {
		// The other member might be from before a restore that it does not know about.
		if p.shouldLog(by) {
			p.c.Logger.Error("a member that is not in this cluster rejected this member, "+
				"because it expects different data; stop that member",
				"member", fmt.Sprintf("%x", by))
		}
		return
	}
	if errors.Is(why, transport.ErrCopy) {
		p.c.Stop(fmt.Errorf("member %x rejected this process: %w", by, copiedData(p.c.Dir)))
		return
	}
	if errors.Is(why, transport.ErrLost) {
		p.c.Stop(fmt.Errorf("member %x rejected this member: %w", by, LostData(p.c.Dir)))
		return
	}
	if errors.Is(why, transport.ErrVersion) {
		p.c.Stop(UnsupportedVersion(fmt.Errorf("member %x rejected this member: %w", by, why), p.c.Dir))
		return
	}
	p.c.Logger.Warn("another member reports that this one was removed",
		"member", fmt.Sprintf("%x", by))
	p.c.Stop(ErrRemoved)
}

// Copies returns how many times a process has been rejected as a copy of a member.
func (p *Peers) Copies() uint64 { return p.copied.Load() }

// Copied implements transport.Handler. The rejected process stops. The other process keeps running,
// because everything received under this ID since it connected came from it.
func (p *Peers) Copied(member uint64) {
	p.copied.Add(1)
	id := fmt.Sprintf("%x", member)
	if member == p.self.Member {
		p.lastCopied.Store(time.Now().UnixMilli())
		p.ownCopyLogged.Do(func() {
			p.c.Logger.Error("another process with this member's identity was rejected: a copy of "+
				"this member's data directory is in use. Find that process, stop it and remove its "+
				"data directory", "member", id, "data-dir", p.c.Dir)
		})
		return
	}
	p.copiesLogged.Do(func() {
		p.c.Logger.Error("two processes have the identity of the same member; the later one was "+
			"rejected. A copy of that member's data directory is in use: find that process, stop "+
			"it and remove its data directory", "member", id)
	})
}

// copyPause is the minimum interval between two log lines about copies of this member, or about
// other copies. Copies might restart in a loop.
const copyPause = time.Minute

// CopyRefused reports whether a process with this member's identity was rejected recently.
func (p *Peers) CopyRefused(now time.Time) bool {
	last := p.lastCopied.Load()
	return last != 0 && now.Sub(time.UnixMilli(last)) < copyShown
}

// copyShown is how long a member's status shows that a copy was rejected.
const copyShown = 10 * time.Minute

// Claimed implements transport.Handler. It is called when another cluster claims this member as its
// own. If this member has just founded a cluster of one, it was started with an empty directory by
// mistake, and has to stop. Otherwise, there would be two clusters where clients expect one. If
// this member's cluster is older, the other cluster is misconfigured.
func (p *Peers) Claimed(cluster, by uint64) {
	v := p.c.View()
	if len(v.Members) == 1 && len(v.Removed) == 0 && p.claim(time.Now()) {
		p.c.Stop(fmt.Errorf("%w: this member has just created cluster %x by itself, but member %x "+
			"of cluster %x considers it a member. If it belonged to that cluster, its data is "+
			"lost: start it with an empty data directory and --join ADDRESS --replace. If not, "+
			"change --initial-advertise-peer-urls or stop that member, and create the cluster "+
			"again",
			ErrLost, p.self.Cluster, by, cluster))
		return
	}
	if p.shouldLog(cluster) {
		p.c.Logger.Error("a member of another cluster considers this one a member of its "+
			"cluster: one of them has an address that the other used to have, or they tried to "+
			"create one cluster with different values of --initial-cluster; in that case, restart "+
			"both with the same --initial-cluster and empty data directories",
			"cluster", fmt.Sprintf("%x", cluster), "member", fmt.Sprintf("%x", by))
	}
}

// young is the maximum age of a cluster of one that might have been founded by mistake.
const young = 10 * time.Minute

// claim reports whether this member had been founded recently when another cluster first claimed
// it. It records that fact, so that the member does not seem older after restarts.
func (p *Peers) claim(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, _ := p.c.Disk.Identity()
	if p.noted.Claimed {
		return true
	}
	if age := now.Sub(time.UnixMilli(id.CreatedUnixMilli)); age < 0 || age > young {
		return false
	}
	p.noted.Claimed = true
	if err := p.c.Disk.SavePeers(p.noted); err != nil {
		p.c.Logger.Error("cannot record that another cluster claims this member", "error", err)
	}
	return true
}

// ResetClaim clears the recorded claim of another cluster after the time young, unless stop is
// called before then.
func (p *Peers) ResetClaim() (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.noted.Claimed {
		return func() {}
	}
	t := time.AfterFunc(young, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.noted.Claimed = false
		if err := p.c.Disk.SavePeers(p.noted); err != nil {
			p.c.Logger.Error("cannot record that no other cluster claims this member", "error", err)
		}
	})
	return func() { t.Stop() }
}

// shouldLog returns true if a member or a cluster has not been logged yet, and records that it has.
func (p *Peers) shouldLog(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.logged[id] || len(p.logged) >= maxLogged {
		return false
	}
	p.logged[id] = true
	return true
}

// maxLogged limits the number of members and clusters that are logged.
const maxLogged = 64

// checkVisitor returns an error if a member that opens a stream cannot be in this member's cluster.
// If the members disagree on the cluster version, the later decision counts.
func (p *Peers) checkVisitor(v transport.Visitor) error {
	own, its := p.c.View(), version.Range(v.Formats)
	switch {
	case len(own.Members) == 0: // this member does not know anything yet
		return nil
	case v.Decided > own.Version.Decided:
		if p.c.Versions.Has(v.Version) {
			return nil
		}
		err := fmt.Errorf("member %x reports that the cluster version is %s", v.Member,
			version.Name(v.Version))
		p.c.Stop(UnsupportedVersion(err, p.c.Dir))
		return err
	case !its.Has(own.Version.Number):
		return fmt.Errorf("%w: the version is %s, but member %x supports %v", transport.ErrVersion,
			version.Name(own.Version.Number), v.Member, its)
	default:
		return nil
	}
}

// Describe implements transport.Handler.
func (p *Peers) Describe() []byte {
	v := p.c.View()
	text, err := json.Marshal(description{p.self.Cluster, v.Members, v.Version.Number})
	if err != nil {
		panic("server: encode the members: " + err.Error())
	}
	return text
}
