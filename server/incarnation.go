package server

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
)

// errLost is wrapped by what a member says that stops because the cluster remembers it with
// other data.
var errLost = errors.New("server: the cluster knows this member with other data")

// errContradicted is wrapped by what a member says that stops because of what another one says of
// its log.
var errContradicted = errors.New("server: stopped, because another member contradicts this " +
	"member's disk")

// lostData says what to do when the data of a member are lost.
func lostData(dir string) error {
	return fmt.Errorf("%w: without it the member would deny what it has acknowledged. Start it "+
		"with its own data. If that is lost, remove %s and start it with --join ADDRESS "+
		"--replace, where ADDRESS is another member's: this removes the lost member and adds a "+
		"new one in its place", errLost, dir)
}

// rolledBack says what to do when another member knows more of this one's log than its disk. It
// leaves a note, so that the member does not start again: under another leader, which does not
// know what this one had, it would not be found out.
func rolledBack(err error, dir string) error {
	if errors.Is(err, replica.ErrImpossible) {
		note := fmt.Sprintf("%s: %v\n", time.Now().UTC().Format(time.RFC3339), err)
		err = damagedError{errors.Join(err, leaveNote(dir, storage.RolledBack, note))}
	}
	return fmt.Errorf("%w: an older state was restored to it, it is a copy of another member's, "+
		"or a stranger has access to the peer URLs (--peer-cert-file and the like keep strangers "+
		"out). If the disk is at fault, remove %s and start the member with --join ADDRESS "+
		"--replace, where ADDRESS is another member's: %w", errContradicted, dir, err)
}

// leaveNote writes a file into a data directory, durably.
func leaveNote(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close(), syncDir(dir))
}

// errCopied is wrapped by what a member says that stops because another process has its identity.
var errCopied = errors.New("server: another process with the identity of this member is running")

// copiedData says what to do when two processes have one identity.
func copiedData(dir string) error {
	return fmt.Errorf("%w: %s is a copy of its data directory, or the other process runs on a "+
		"copy. Both would vote and acknowledge as one member. Find the other process. If it is "+
		"the right one, remove %s; to add a member, start with an empty data directory and "+
		"--join ADDRESS. If this is the right one, stop the other process and restart this one",
		errCopied, dir, dir)
}

// newIncarnation returns a random number for a data directory that begins.
func newIncarnation() uint64 { return rand.Uint64() | 1 }

// acquaintance is what this member knows of the others' data, and they of its own.
//
// A member that has lost its data comes back under its old ID, but with another incarnation,
// and no member that knows the old one takes a message from it. The replicated state has the
// incarnations of members that have served. Before there is such a state each member notes
// whom it meets; and a founder takes no part before all other founders have noted it, or a
// majority has and the others cannot be reached. So founders with empty directories found
// nothing while one that they can reach remembers a cluster.
type acquaintance struct {
	disk        *storage.Disk
	dir         string
	incarnation uint64 // of this member
	log         *slog.Logger
	complete    atomic.Bool // this member takes part

	copied     atomic.Uint64 // times that a process was refused as a copy of a member
	lastCopied atomic.Int64  // when that was one of this member, in milliseconds since 1970
	// Between lines of the log about copies of this member, and of others.
	ownCopyTold, copiesTold rate.Sometimes

	mu      sync.Mutex // guards what follows, and saving noted
	noted   storage.Peers
	missing map[uint64]string // founders that have not noted this member: name by ID
	spare   int               // how many of them may be missing in the end
	waited  bool              // those that are missing had their time
	told    map[uint64]bool   // members and clusters of whom the log has told
}

func newAcquaintance(s *Server) *acquaintance {
	id, _ := s.core.disk.Identity()
	a := &acquaintance{
		disk: s.core.disk, dir: s.cfg.DataDir, incarnation: id.Incarnation, log: s.cfg.Logger,
		noted: s.core.disk.Peers(), missing: make(map[uint64]string),
		told:        make(map[uint64]bool),
		ownCopyTold: rate.Sometimes{Interval: copyPause},
		copiesTold:  rate.Sometimes{Interval: copyPause},
	}
	if a.noted.Incarnations == nil {
		a.noted.Incarnations = make(map[uint64]uint64)
	}
	for _, m := range s.node.View().Members {
		if m.ID != id.Member && !a.noted.Assembled {
			a.missing[m.ID] = m.Name
		}
	}
	a.spare = len(a.missing) / 2 // of 3 founders 1, of 4 1
	a.complete.Store(len(a.missing) == 0)
	return a
}

// assembled reports whether this member may take part: vote, and acknowledge entries.
func (a *acquaintance) assembled() bool { return a.complete.Load() }

// assemble begins to wait for the other founders, if there is need. What it returns ends that.
func (a *acquaintance) assemble(wait time.Duration) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.missing) == 0 {
		return func() {}
	}
	a.log.Info("founding a cluster: waiting for the other founders", "missing", a.names(),
		"at-most", wait)
	if wait == 0 {
		return func() {}
	}
	t := time.AfterFunc(wait, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.waited = true
		if err := a.takePartLocked(); err != nil {
			a.log.Error("cannot save which founders are present", "error", err)
		}
	})
	return func() { t.Stop() }
}

// names tells who is missing.
func (a *acquaintance) names() string {
	return strings.Join(slices.Sorted(maps.Values(a.missing)), ",")
}

// takePartLocked lets this founder take part if enough others have noted it.
func (a *acquaintance) takePartLocked() error {
	n := len(a.missing)
	if a.complete.Load() || n > a.spare || n > 0 && !a.waited {
		return nil
	}
	a.noted.Assembled = true
	if err := a.disk.SavePeers(a.noted); err != nil {
		a.noted.Assembled = false
		return err
	}
	if a.complete.Store(true); n > 0 {
		a.log.Warn("founding a cluster without unreachable members; if these members have "+
			"already been in a cluster together, stop all of them and find its data",
			"missing", a.names())
		return nil
	}
	a.log.Info("all founders are present")
	return nil
}

// note returns the incarnation that a member has, and notes it if it is the first.
func (a *acquaintance) note(member, incarnation uint64) (known uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.noted.Incarnations[member]; known != 0 || incarnation == 0 {
		return known, nil
	}
	a.noted.Incarnations[member] = incarnation
	if err := a.disk.SavePeers(a.noted); err != nil {
		delete(a.noted.Incarnations, member)
		return 0, err
	}
	return incarnation, nil
}

// notedBy takes in that another founder has noted this member.
func (a *acquaintance) notedBy(member uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.missing, member)
	return a.takePartLocked()
}

// recognize reports whether a member is the one that this one remembers.
func (p *peers) recognize(member, incarnation uint64) error {
	m, ok := p.core.view.Load().Member(member)
	if !ok {
		return nil // it takes no part here before the state names it; then it is asked again
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
func (p *peers) Admit(v transport.Visitor) error {
	member := v.Member
	if slices.Contains(p.core.view.Load().Removed, member) {
		return transport.ErrRemoved
	}
	err := p.recognize(member, v.Incarnation)
	if errors.Is(err, transport.ErrLost) && p.news(member) {
		p.log.Error("refused a member that returned with other data than it had; replace it, see "+
			"leasehold serve --join --replace",
			"member", fmt.Sprintf("%x", member))
	}
	if err == nil {
		err = p.agree(v)
	}
	return err
}

// Met implements transport.Handler.
func (p *peers) Met(member, incarnation uint64) error {
	err := p.recognize(member, incarnation)
	if err == nil {
		err = p.notedBy(member)
	}
	return err
}

// Expelled implements transport.Handler. A member that has not applied its own
// removal, because nobody sends it anything any more, learns of it so.
func (p *peers) Expelled(by uint64, why error) {
	v := p.core.view.Load()
	_, known := v.Member(by)
	if errors.Is(why, transport.ErrLost) && !known && len(v.Members) > 0 && p.assembled() {
		// A member of before a restore, say, which does not know that there was one.
		if p.news(by) {
			p.log.Error("refused by a member that is not in this cluster, and remembers this one "+
				"with other data; stop it", "member", fmt.Sprintf("%x", by))
		}
		return
	}
	if errors.Is(why, transport.ErrCopy) {
		p.removed(fmt.Errorf("member %x refuses this process: %w", by, copiedData(p.dir)))
		return
	}
	if errors.Is(why, transport.ErrLost) {
		p.removed(fmt.Errorf("member %x refuses this one: %w", by, lostData(p.dir)))
		return
	}
	if errors.Is(why, transport.ErrVersion) {
		p.removed(foreign(fmt.Errorf("member %x refuses this one: %w", by, why), p.dir))
		return
	}
	p.log.Warn("another member says that this one was removed", "member", fmt.Sprintf("%x", by))
	p.removed(errRemoved)
}

// Copied implements transport.Handler. The process that was refused stops. The other one goes
// on: all that the cluster has been told under this ID since it is connected is its own.
func (p *peers) Copied(member uint64) {
	p.copied.Add(1)
	id := fmt.Sprintf("%x", member)
	if member == p.member {
		p.lastCopied.Store(time.Now().UnixMilli())
		p.ownCopyTold.Do(func() {
			p.log.Error("another process with the identity of this member was refused: a copy of this "+
				"member's data directory is being run. Find that process, stop it and remove its data "+
				"directory", "member", id, "data-dir", p.dir)
		})
		return
	}
	p.copiesTold.Do(func() {
		p.log.Error("two processes have the identity of one member; the one that came later was "+
			"refused. A copy of that member's data directory is being run: find that process, stop "+
			"it and remove its data directory", "member", id)
	})
}

// copyPause is the least time between two lines of the log about copies of this member, or of
// others. A copy that is started again and again is refused as often.
const copyPause = time.Minute

// copyRefused reports whether a process with this member's identity was refused lately.
func (a *acquaintance) copyRefused(now time.Time) bool {
	last := a.lastCopied.Load()
	return last != 0 && now.Sub(time.UnixMilli(last)) < copyShown
}

// copyShown is for how long the status of a member tells that a copy was refused.
const copyShown = 10 * time.Minute

// Claimed implements transport.Handler. A member that has just founded a cluster alone, and that
// another cluster takes for one of its own, was started with an empty directory by mistake: were
// it to go on, there would be two clusters where clients know of one. A member whose cluster is
// older is no such mistake, but the other cluster's configuration is.
func (p *peers) Claimed(cluster, by uint64) {
	v := p.core.view.Load()
	if len(v.Members) == 1 && len(v.Removed) == 0 && p.claim(time.Now()) {
		p.removed(fmt.Errorf("%w: this member has just founded cluster %x alone, but member %x "+
			"of cluster %x considers it one of its own. If it was in that cluster, its data is "+
			"lost: start it with an empty data directory and --join ADDRESS --replace. If not, "+
			"change --initial-advertise-peer-urls or stop that member, and found the cluster "+
			"again",
			errLost, p.cluster, by, cluster))
		return
	}
	if p.news(cluster) {
		p.log.Error("a member of another cluster takes this one for its own: one of them has an "+
			"address that was the other's, or they were to found one cluster with different "+
			"--initial-cluster; in that case restart both with the same --initial-cluster and "+
			"empty data "+
			"directories", "cluster", fmt.Sprintf("%x", cluster), "member", fmt.Sprintf("%x", by))
	}
}

// young is how long after its founding a cluster of one may be a mistake.
const young = 10 * time.Minute

// claim reports whether this member was founded lately when another cluster claimed it first, and
// notes that: it must not get old by being started again and again.
func (a *acquaintance) claim(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, _ := a.disk.Identity()
	if a.noted.Claimed {
		return true
	}
	if age := now.Sub(time.UnixMilli(id.CreatedUnixMilli)); age < 0 || age > young {
		return false
	}
	a.noted.Claimed = true
	if err := a.disk.SavePeers(a.noted); err != nil {
		a.log.Error("cannot save that another cluster claims this member", "error", err)
	}
	return true
}

// forgive begins to wait until this member, if another cluster has claimed it before, has been
// left alone for as long as it may have been a mistake: then it is none any more. What it returns
// ends that.
func (a *acquaintance) forgive() (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.noted.Claimed {
		return func() {}
	}
	t := time.AfterFunc(young, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.noted.Claimed = false
		if err := a.disk.SavePeers(a.noted); err != nil {
			a.log.Error("cannot save that no other cluster claims this member", "error", err)
		}
	})
	return func() { t.Stop() }
}

// news reports whether the log has not yet told of a member or a cluster.
func (a *acquaintance) news(id uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told[id] || len(a.told) >= maxTold {
		return false
	}
	a.told[id] = true
	return true
}

// maxTold bounds of how many others the log tells.
const maxTold = 64
