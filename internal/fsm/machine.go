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
	// Lease must be the same on every member of a cluster, because apply depends on it.
	Lease lease.Config
	// LeaseEvents is how many lease events are kept for watchers that resume late. Zero means
	// 16,384.
	LeaseEvents int
	// AheadKeys is how many keys Ahead deletes at a time. Zero means 8,192.
	AheadKeys int
	// Versions are the cluster versions that this member supports. The zero value means the
	// versions supported by this release.
	Versions version.Range
	// Async, if not nil, runs f concurrently and returns a function that waits for it. This
	// package starts no goroutines, so without Async, Restore is sequential.
	Async func(f func()) (wait func())
}

// Machine is the replicated state. It is not safe for concurrent use.
//
// Invariant: the lease of a live key is L if and only if the lessor has the key attached to L.
type Machine struct {
	cfg     Config
	lessor  *lease.Lessor
	store   *mvcc.Store
	members map[uint64]Member
	// removed contains the IDs of former members. Invariant: none of them is in members.
	removed map[uint64]struct{}
	alarms  map[Alarm]struct{}
	version ClusterVersion
	// holds contains the holds of leases, and the orphans. Invariant: only live leases hold ranges.
	holds   holdings
	index   uint64
	term    uint64
	changed changed
	taken   changed // the last result of TakeChanges
	events  LeaseEvents
	// step collects what the current command does to leases.
	step step
	// silences is not part of the replicated state either
	silences Silences
	stats    counted
	view     *View
	meta     meta
	// ahead is the deletion that has been partly carried out before its entry is applied, or nil.
	ahead    *ahead
	sessions *sessions
}

// meta contains users and roles, and values derived from members and alarms.
type meta struct {
	// changed is true if members, alarms, users, roles or the version differ from the current view.
	changed bool
	// bytes is the size of members and alarms. quota is the smallest quota of any member.
	bytes, quota int64
	access       *access.State // nil if access control was never used
	writers      keyWriters    // not part of the replicated state
	accounts     accounts
	comparison   comparison
	restore      uint64 // the ID of the restore that produced the state, or 0
}

// Stats counts the effects of Apply since the Machine was created, except for entries excluded by
// CountAfter. It is not part of the replicated state.
type Stats struct{ Granted, Revoked, Expired, Checkpointed uint64 }

// counted contains the Stats for the entries whose index exceeds after. event is the last lease
// event up to that index.
type counted struct {
	Stats
	after, event uint64
}

// Change contains the events of one revision, in order.
type Change struct {
	Revision int64
	Events   []mvcc.Event
}

// New returns the empty state: no leases, no keys, no members, revision 1, and the oldest supported
// cluster version.
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

// Leases returns an immutable view of the leases as of the last applied entry. Any goroutine may
// read it. It is not part of a View: a View is created for every batch of entries, and this call is
// more expensive, because after it the first change to each page of 256 leases copies the page.
// Call it only on demand.
func (m *Machine) Leases() lease.View {
	if m.ahead != nil {
		return m.ahead.before.leases
	}
	return m.lessor.View()
}

// Lessor returns the lease engine. The replica uses it to promote the engine, advance its clock and
// find due leases. Only Apply may call its replicated operations.
func (m *Machine) Lessor() *lease.Lessor { return m.lessor }

// Access returns the users and roles, or nil if access control was never used.
func (m *Machine) Access() *access.State { return m.meta.access }

// Index returns the index of the last applied entry.
func (m *Machine) Index() uint64 { return m.index }

// Term returns the term of the last applied entry.
func (m *Machine) Term() uint64 { return m.term }

// CountAfter excludes entries up to index from Stats, because a member that restarts applies its
// log again.
func (m *Machine) CountAfter(index uint64) { m.stats.after = index }

// Replaying reports whether all entries applied so far are excluded by CountAfter. Once it returns
// false, event is the last lease event of the excluded entries.
func (m *Machine) Replaying() (event uint64, yes bool) {
	return m.stats.event, m.index <= m.stats.after
}

// Stats returns the counts so far.
func (m *Machine) Stats() Stats {
	if m.index <= m.stats.after {
		return Stats{}
	}
	return m.stats.Stats
}

// Scrub does a bounded amount of the cleanup after a compaction, and reports whether there is more
// to do.
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

// TakeChanges returns the changes to the store since the last call, in order.
func (m *Machine) TakeChanges() []Change {
	c := m.changed.changes
	m.taken, m.changed = m.changed, changed{}
	return c
}

// ReuseChanges makes the memory of the last result of TakeChanges, including its events, available
// for reuse. The caller must no longer use that result.
func (m *Machine) ReuseChanges() {
	if len(m.changed.changes) == 0 {
		m.changed = changed{emptied(m.taken.changes), emptied(m.taken.events)}
	}
	m.taken = changed{}
}

// changed holds the changes since the last TakeChanges.
type changed struct {
	changes []Change
	events  []mvcc.Event // events of the changes; the first ones may be missing
}

// Begin starts the entry (index, term). The commands that follow belong to it. The entry is
// considered applied even if it has no commands. Begin returns false for entries at or below Index:
// apply is idempotent by index (T11).
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

// Apply applies one command of the entry passed to Begin.
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

// apply applies a command on behalf of a user, or of an anonymous caller if user is "".
func (m *Machine) apply(user string, c Command) Result {
	m.step.before = m.lessor.LastToken()
	r := m.execute(user, c)
	m.settle()
	return r
}

func (m *Machine) execute(user string, c Command) Result {
	if len(m.alarms) > 0 && fromClient(c) && m.membersDiffer() {
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

// end completes a write transaction and queues its events for watchers.
func (m *Machine) end(t *mvcc.Txn) {
	rev, events := t.End()
	if len(events) == 0 {
		return
	}
	c := &m.changed
	first := len(c.events)
	if first == 0 && cap(events) > mvcc.KeptEvents {
		c.events = events // the slice is not shared
	} else {
		c.events = append(c.events, events...)
	}
	n := len(c.events)
	c.changes = append(c.changes, Change{Revision: rev, Events: c.events[first:n:n]})
}

// metaChange updates the values derived from members and alarms.
func (m *Machine) metaChange() {
	m.meta.changed, m.meta.bytes, m.meta.quota = true, m.clusterBytes(), m.leastQuota()
	m.sessions.quota = m.meta.quota
}

// raised reports whether any member has an alarm of this kind.
func (m *Machine) raised(k AlarmKind) bool {
	for a := range m.alarms {
		if a.Kind == k {
			return true
		}
	}
	return false
}

// membersDiffer reports whether a comparison found that members differ, without establishing which
// of them is correct.
func (m *Machine) membersDiffer() bool { return m.raised(Corrupt) || m.raised(Split) }

// fromClient reports whether c is a client's change to keys, leases, users or roles.
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
	// requested before the member was removed; an alarm raised now would never be cleared
	case removed:
		return Result{Value: []Alarm(nil)}
	case !c.Off && !raised && m.unknownAlarms(c.Alarm.Member) >= maxUnknownAlarms:
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

// showsAlarm reports whether clients see the alarm as raised.
func (m *Machine) showsAlarm(a Alarm) bool {
	for other := range m.alarms {
		if other.shown() == a {
			return true
		}
	}
	return false
}

// shown returns the alarm as it appears to clients.
func (a Alarm) shown() Alarm { return Alarm{a.Member, a.Kind.Shown()} }

// maxUnknownAlarms caps the number of alarms of unknown members. The etcd API lets a client raise
// an alarm for any member ID, and every command examines all alarms.
const maxUnknownAlarms = 64

// unknownAlarms returns the number of alarms of unknown members, or 0 if the given member is known.
func (m *Machine) unknownAlarms(member uint64) (n int) {
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
