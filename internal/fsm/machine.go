package fsm

import (
	"cmp"
	"maps"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// Config configures a Machine.
type Config struct {
	// Lease must be the same for every member of a cluster, since apply depends
	// on it.
	Lease lease.Config
	// LeaseEvents is how many events of leases are kept for followers that come
	// late. Zero means 16,384.
	LeaseEvents int
	// AheadKeys is how many keys Ahead deletes at a time. Zero means 8,192.
	AheadKeys int
	// Versions are the cluster versions that this member speaks. Zero means those of this release.
	Versions version.Range
	// Beside runs f beside the caller and returns what waits for its end. This package starts no
	// goroutine: without it, Restore does one thing after another.
	Beside func(f func()) (wait func())
}

// Machine is the replicated state. It is not safe for concurrent use.
//
// Invariant: a live key's lease is L if and only if the lessor has the key
// attached to L.
type Machine struct {
	cfg     Config
	lessor  *lease.Lessor
	store   *mvcc.Store
	members map[uint64]Member
	// removed holds the IDs of members that were. Invariant: none is in members.
	removed map[uint64]struct{}
	alarms  map[Alarm]struct{}
	version ClusterVersion
	// holds is what leases hold, and what orphans do. Invariant: only leases that are alive
	// hold anything.
	holds   holdings
	index   uint64
	term    uint64
	changed changed
	taken   changed // what TakeChanges has returned
	events  LeaseEvents
	// step is what the command that is being applied has done to leases so far.
	step step
	// silences is no part of the replicated state either.
	silences Silences
	stats    counted
	view     *View
	meta     meta
	// ahead is the deletion that is under way before its entry has begun, nil if there is none.
	ahead    *ahead
	sessions *sessions
}

// meta has users and roles, and what follows from the members and the alarms.
type meta struct {
	// changed says that members, alarms, users, roles or the version differ from those in view.
	changed bool
	// bytes is what the members and the alarms take, and quota the least of the members'.
	bytes, quota int64
	access       *access.State // nil as long as there never were any users or roles
	writers      keyWriters    // no part of the replicated state
	accounts     accounts
	comparison   comparison
	restore      uint64 // the ID of the restore that the state comes from, 0 if it comes from none
}

// Stats counts what Apply has done since the Machine was made, except for entries that CountAfter
// leaves out. It is not part of the replicated state.
type Stats struct{ Granted, Revoked, Expired, Checkpointed uint64 }

// counted is Stats of the entries after an index, and the last lease event up to there.
type counted struct {
	Stats
	after, event uint64
}

// Change is the events of one revision, in order.
type Change struct {
	Revision int64
	Events   []mvcc.Event
}

// New returns the empty state: no leases, no keys, revision 1, no members, and the oldest cluster
// version.
func New(c Config) *Machine {
	if !c.Versions.Known() {
		c.Versions = version.Spoken
	}
	lessor := lease.New(c.Lease)
	return &Machine{
		cfg:     c,
		lessor:  lessor,
		store:   mvcc.New(),
		members: make(map[uint64]Member),
		removed: make(map[uint64]struct{}),
		alarms:  make(map[Alarm]struct{}),
		version: ClusterVersion{Number: c.Versions.Oldest},
		events: LeaseEvents{
			recent: recent[LeaseEvent]{most: cmp.Or(c.LeaseEvents, defaultLeaseEvents)},
		},
		silences: Silences{recent: recent[Silence]{most: keptSilences}},
		meta:     meta{changed: true, accounts: accounts{leases: lessor}},
		sessions: newSessions(),
	}
}

// Leases returns an immutable picture of the leases as of the last applied entry, which any
// goroutine may read. It is not part of a View, since there is a View for every batch of entries
// and a picture is not free: the first change of each page of 256 leases after a picture copies
// the page. So take one only on request.
func (m *Machine) Leases() lease.View {
	if m.ahead != nil {
		return m.ahead.before.leases
	}
	return m.lessor.View()
}

// Lessor returns the lease engine, for the replica to promote, advance and
// ask for due leases. Its replicated operations belong to Apply alone.
func (m *Machine) Lessor() *lease.Lessor { return m.lessor }

// Access returns the users and roles, nil as long as there never were any.
func (m *Machine) Access() *access.State { return m.meta.access }

// Index returns the index of the last applied entry.
func (m *Machine) Index() uint64 { return m.index }

// Term returns the term of the last applied entry.
func (m *Machine) Term() uint64 { return m.term }

// CountAfter leaves entries up to index out of Stats: a member that starts applies again what is in
// its log.
func (m *Machine) CountAfter(index uint64) { m.stats.after = index }

// Replaying reports whether only entries that CountAfter leaves out were applied so far. Otherwise
// event is the last lease event of these entries.
func (m *Machine) Replaying() (event uint64, yes bool) {
	return m.stats.event, m.index <= m.stats.after
}

// Stats returns what Apply has done so far.
func (m *Machine) Stats() Stats {
	if m.index <= m.stats.after {
		return Stats{}
	}
	return m.stats.Stats
}

// Scrub does a bounded piece of the cleaning that compaction left to do, and
// reports whether there is more.
func (m *Machine) Scrub(budget int) bool { return m.ahead != nil || m.store.Scrub(budget) }

// View returns the state as of the last applied entry.
func (m *Machine) View() *View {
	if m.ahead != nil {
		return m.ahead.before.View
	}
	kv := m.store.View()
	if old := m.view; old != nil && !m.meta.changed {
		if old.KV == kv && old.Index == m.index && old.Term == m.term {
			return old
		}
		m.view = &View{
			KV: kv, Index: m.index, Term: m.term,
			Members: old.Members, Removed: old.Removed, Alarms: old.Alarms, Version: old.Version,
			LeaseEvents: m.events, Silences: m.silences, CacheTTL: m.CacheTTL(),
			Bytes: m.bytes(), Quota: m.meta.quota, Access: m.meta.access, Restore: m.meta.restore,
		}
		return m.view
	}
	m.view = &View{
		KV: kv, Index: m.index, Term: m.term,
		Members: sortedMembers(m.members), Removed: slices.Sorted(maps.Keys(m.removed)),
		Alarms: sortedAlarms(m.alarms), Version: m.version, LeaseEvents: m.events, Silences: m.silences,
		CacheTTL: m.CacheTTL(), Bytes: m.bytes(), Quota: m.meta.quota, Access: m.meta.access,
		Restore: m.meta.restore,
	}
	m.meta.changed = false
	return m.view
}

// TakeChanges returns the changes of the store since the last call, in order.
func (m *Machine) TakeChanges() []Change {
	c := m.changed.changes
	m.taken, m.changed = m.changed, changed{}
	return c
}

// ReuseChanges says that the last result of TakeChanges, with its events, is no longer in use.
func (m *Machine) ReuseChanges() {
	if len(m.changed.changes) == 0 {
		m.changed = changed{emptied(m.taken.changes), emptied(m.taken.events)}
	}
	m.taken = changed{}
}

// changed has the changes since the last TakeChanges.
type changed struct {
	changes []Change
	events  []mvcc.Event // those of the changes, but for some of the first
}

// Begin says that the entry (index, term) is applied next, or counts as applied if it has no
// commands. Entries at or below Index are refused with false: apply is idempotent by index (T11).
func (m *Machine) Begin(index, term uint64) bool {
	if index <= m.index {
		return false
	}
	if m.index <= m.stats.after && index > m.stats.after {
		m.stats.Stats, m.stats.event = Stats{}, m.events.Last()
	}
	m.index, m.term = index, term
	return true
}

// Apply applies one command of the entry that Begin named.
func (m *Machine) Apply(c Command) Result {
	if err := m.denied(c); err != nil {
		return Result{Revision: m.store.Revision(), Err: err}
	}
	who, c := unwrap(c)
	m.meta.accounts.caller = access.Caller{}
	if m.meta.access.Enabled() {
		m.meta.accounts.caller = who
	}
	if c, ok := c.(*Once); ok {
		return m.applyOnce(who.User, c)
	}
	r := m.apply(who.User, c)
	r.Revision = m.store.Revision()
	return r
}

// apply applies a command of a user, "" if it is on behalf of nobody.
func (m *Machine) apply(user string, c Command) Result {
	m.step.before = m.lessor.LastToken()
	r := m.carryOut(user, c)
	m.settle()
	return r
}

func (m *Machine) carryOut(user string, c Command) Result {
	if len(m.alarms) > 0 && fromClient(c) && m.differ() {
		return Result{Err: ErrDiverged}
	}
	switch c := c.(type) {
	case *Put:
		return m.applyPut(c)
	case *DeleteRange:
		return m.applyDelete(c)
	case *Txn:
		return m.applyTxn(c)
	case *Compact:
		return Result{Err: m.store.Compact(c.Revision)}
	case *Grant:
		return m.applyGrant(c)
	case *Revoke:
		return m.applyRevoke(c)
	case *ChangeTTL, *HandOver, *Resume:
		return m.applyLease(c)
	case *Expire:
		return m.applyExpire(c)
	case *Checkpoint:
		return m.applyCheckpoint(c)
	case *DropOrphans:
		return m.applyDropOrphans(c)
	case *SetAlarm:
		return m.applyAlarm(c)
	case *OpenSession:
		return Result{Value: m.sessions.open(c.Nonce, user)}
	case *SetMember, *AddMember, *RemoveMember, *PromoteMember:
		return Result{Err: m.applyMember(c)}
	case *SetVersion:
		return Result{Err: m.applyVersion(c)}
	case *HashState, *StateHash:
		return m.applyComparison(c)
	default:
		return Result{Err: m.applyAccess(c)}
	}
}

// end closes a write transaction and keeps its events for the watchers.
func (m *Machine) end(t *mvcc.Txn) {
	rev, events := t.End()
	if len(events) == 0 {
		return
	}
	c := &m.changed
	first := len(c.events)
	if first == 0 && cap(events) > mvcc.KeptEvents {
		c.events = events // nobody else has them any more
	} else {
		c.events = append(c.events, events...)
	}
	n := len(c.events)
	c.changes = append(c.changes, Change{Revision: rev, Events: c.events[first:n:n]})
}

// metaChange notes that members or alarms have changed.
func (m *Machine) metaChange() {
	m.meta.changed, m.meta.bytes, m.meta.quota = true, m.clusterBytes(), m.leastQuota()
	m.sessions.quota = m.meta.quota
}

// raised reports whether any member's alarm of a kind is.
func (m *Machine) raised(k AlarmKind) bool {
	for a := range m.alarms {
		if a.Kind == k {
			return true
		}
	}
	return false
}

// differ reports whether a comparison has found that the members' states differ, and not which is
// right.
func (m *Machine) differ() bool { return m.raised(Corrupt) || m.raised(Split) }

// fromClient reports whether c is a client's change of keys or leases.
func fromClient(c Command) bool {
	switch c.(type) {
	case *SetAlarm, *SetMember, *SetVersion, *Expire, *Checkpoint, *DropOrphans, *HashState,
		*StateHash:
		return false
	default:
		return !Membership(c)
	}
}

func (m *Machine) applyAlarm(c *SetAlarm) Result {
	raised := m.showsAlarm(c.Alarm)
	_, removed := m.removed[c.Alarm.Member]
	switch {
	case removed: // asked for before the removal; nobody would lift it
		return Result{Value: []Alarm(nil)}
	case !c.Off && !raised && m.strangeAlarms(c.Alarm.Member) >= maxStrangeAlarms:
		return Result{Err: ErrTooManyAlarms}
	case !c.Off:
		m.alarms[c.Alarm] = struct{}{}
	case !raised:
		return Result{Value: []Alarm(nil)}
	default:
		maps.DeleteFunc(m.alarms, func(a Alarm, _ struct{}) bool { return a.shown() == c.Alarm })
	}
	m.metaChange()
	return Result{Value: []Alarm{c.Alarm}}
}

// showsAlarm reports whether clients see an alarm as raised.
func (m *Machine) showsAlarm(a Alarm) bool {
	for other := range m.alarms {
		if other.shown() == a {
			return true
		}
	}
	return false
}

// shown is the alarm as clients see it.
func (a Alarm) shown() Alarm { return Alarm{a.Member, a.Kind.Shown()} }

// maxStrangeAlarms is how many alarms of unknown members there may be. etcd's API lets a client
// raise an alarm for any member ID, and every command looks at all alarms.
const maxStrangeAlarms = 64

// strangeAlarms returns how many alarms of unknown members there are, if this member is unknown
// as well.
func (m *Machine) strangeAlarms(member uint64) (n int) {
	if _, ok := m.members[member]; ok {
		return 0
	}
	for a := range m.alarms {
		if _, ok := m.members[a.Member]; !ok {
			n++
		}
	}
	return n
}

func sortedMembers(in map[uint64]Member) []Member {
	out := make([]Member, 0, len(in))
	for _, id := range slices.Sorted(maps.Keys(in)) {
		out = append(out, in[id])
	}
	return out
}

func sortedAlarms(in map[Alarm]struct{}) []Alarm {
	out := make([]Alarm, 0, len(in))
	for a := range in {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Alarm) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}
