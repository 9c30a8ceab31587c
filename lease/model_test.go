package lease

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/test/tier"
)

// model runs the same commands on a primary, a follower, and the twin. The follower's clock is
// ahead by a fixed difference.
type model struct {
	choose   func(n int) int // returns 0 to n-1
	primary  *Lessor
	follower *Lessor
	twin     *twin
	inFlight []any // []Due and []Checkpoint, oldest first
	err      error
	seen     map[*Lessor]standings

	lastGroup GroupID
}

const modelSkew = 12_345

func newModel(choose func(int) int) *model {
	cfg := Config{
		MinTTL: 2, MaxTTL: 1 << 20, MaxKeys: 4,
		CheckpointInterval: []TTL{3, 50, 1000, 1 << 30}[choose(4)],
		Untended:           []TTL{0, 2, 300}[choose(3)],
		AtOnce:             []int{0, 1, 2, 9}[choose(4)],
	}
	m := &model{
		choose: choose, primary: New(cfg), follower: New(cfg), seen: make(map[*Lessor]standings),
	}
	m.twin = &twin{cfg: cfg.withDefaults(), leases: map[ID]*twinLease{}, owner: map[string]ID{}}
	m.follower.Advance(modelSkew)
	return m
}

func (m *model) failf(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

func (m *model) same(what string, a, b any) {
	if x, y := fmt.Sprintf("%v", a), fmt.Sprintf("%v", b); x != y {
		m.failf("%s: %s, want %s", what, x, y)
	}
}

// sameErr compares the types of two errors.
func (m *model) sameErr(what string, a, b error) {
	var x, y *NameError
	switch {
	case errors.As(a, &x) && errors.As(b, &y):
		m.same(what, x, y)
	case errors.Is(a, b):
	default:
		m.same(what, fmt.Sprintf("%T", a), fmt.Sprintf("%T", b))
	}
}

func (m *model) id() ID { return ID(1 + m.choose(12)) }

func (m *model) key() string { return string(rune('a' + m.choose(16))) }

// span chooses a duration with a uniformly distributed magnitude.
func (m *model) span() int64 { return int64(m.choose(1 << m.choose(14))) }

// both applies a replicated command on both members.
func both[T any](m *model, f func(l *Lessor) T) T {
	out := f(m.primary)
	m.same("follower", f(m.follower), out)
	return out
}

type result struct {
	ended Ended
	info  Info
	err   error
	ok    bool
}

// String formats the result with its error as text. (Printing the whole struct often shows only a
// pointer in place of the error.)
func (r result) String() string {
	return fmt.Sprintf("%+v %+v %v %v", r.ended, r.info, r.err, r.ok)
}

// step performs one random operation.
func (m *model) step() {
	switch m.choose(38) {
	case 0, 1, 2:
		terms := Terms{ID: m.id() - ID(m.choose(2)), TTL: TTL(m.span())}
		if m.choose(3) == 0 {
			terms.Name = []string{"", "x", "y"}[m.choose(3)]
			terms.Owner = []string{"", "o", "p"}[m.choose(3)]
			terms.Principal = []string{"", "u", "v"}[m.choose(3)]
			terms.RequestID = []string{"", "r", "s"}[m.choose(3)]
			terms.Labels = map[string]string{"l": terms.Owner}
			terms.LockDelay = TTL(m.span()-4) * TTL(m.choose(2))
			terms.KeepKeys = m.choose(2) == 0
			terms.Bound = m.choose(3) == 0
			terms.Secret = m.secret()
		}
		info, err := m.twin.grant(terms)
		r := both(m, func(l *Lessor) result {
			i, err := l.Grant(terms)
			return result{info: i, err: err}
		})
		m.sameErr("grant", r.err, err)
		m.same("grant", r.info, info)
	case 3:
		id := m.id()
		e, err := m.twin.revoke(id)
		m.same("revoke", both(m, func(l *Lessor) result {
			e, err := l.Revoke(id)
			return result{ended: e, err: err}
		}), result{ended: e, err: err})
	case 4, 5:
		id, key := m.id(), m.key()
		err := m.twin.attach(id, key)
		r := both(m, func(l *Lessor) result { return result{err: l.Attach(id, key)} })
		m.sameErr("attach", r.err, err)
	case 6:
		key := m.key()
		delete(m.twin.owner, key)
		both(m, func(l *Lessor) bool { l.Detach(key); return true })
	case 7, 8, 9:
		m.advance(m.span())
	case 10, 11:
		m.renew(m.held())
	case 12:
		m.clear(m.id())
	case 13:
		m.lead()
	case 14, 15:
		m.decide()
	case 16:
		m.report()
	case 17, 18:
		m.outcome(m.choose(6) > 0)
	case 19:
		m.restore()
	case 20:
		id := m.id()
		m.twin.abandon(id)
		m.primary.Abandon(id)
	case 26:
		m.twin.checkpointAll()
		m.primary.CheckpointAll()
	case 27:
		m.twin.recount()
		both(m, func(l *Lessor) bool { l.Recount(); return true })
	case 21:
		m.twin.tokens++
		m.same("token", both(m, (*Lessor).DrawToken), m.twin.tokens)
	case 28, 29, 30, 31, 32, 33, 34, 35, 36, 37:
		m.groups()
	default:
		m.change()
	}
}

// groups performs a random operation on groups.
func (m *model) groups() {
	g := m.lastGroup - GroupID(m.choose(4))
	switch m.choose(10) {
	case 0:
		m.openGroup(TTL(m.span()))
	case 1, 2, 3, 4:
		id, token := m.held()
		if l := m.twin.leases[id]; l != nil && m.choose(4) > 0 {
			if g = m.groupFor(l.TTL); g == 0 {
				g = m.openGroup(l.TTL)
			}
		}
		if m.choose(2) == 0 {
			m.renew(id, token)
		}
		m.same("join", m.primary.Join(g, id, token), m.twin.join(g, id, token))
	case 5, 6:
		ttl, ok := m.primary.RenewGroup(g)
		want, wantOK := m.twin.renewGroup(g)
		m.same("renewed group", []any{ttl, ok}, []any{want, wantOK})
	case 7:
		id := m.id()
		if l := m.twin.leases[id]; l != nil && m.choose(2) == 0 {
			g = l.group
		}
		asOf := LastRenewal
		if m.choose(2) == 0 {
			asOf = m.twin.now - Instant(m.span())
		}
		m.primary.Leave(g, id, asOf)
		m.twin.leave(g, id, asOf)
	case 8:
		left, ok := m.primary.Left(g)
		want, wantOK := m.twin.left(g)
		m.same("left", []any{left, ok}, []any{want, wantOK})
	case 9:
		if m.choose(3) == 0 {
			untended := m.choose(2) == 0
			m.primary.EndGroup(g, untended)
			m.twin.endGroup(g, untended)
		}
	}
}

func (m *model) openGroup(ttl TTL) GroupID {
	m.lastGroup++
	m.twin.openGroup(m.lastGroup, ttl)
	m.primary.OpenGroup(m.lastGroup, ttl)
	return m.lastGroup
}

// groupFor returns the newest group with the given TTL, or 0 if there is none.
func (m *model) groupFor(ttl TTL) (found GroupID) {
	for id, g := range m.twin.groups {
		if g.ttl == ttl {
			found = max(found, id)
		}
	}
	return found
}

func (m *model) renew(id ID, token Token) {
	want, err := m.twin.renew(id, token)
	got, err2 := m.primary.Renew(id, token)
	m.sameErr("renew", err2, err)
	m.same("renew", got, want)
}

func (m *model) secret() (s Secret) {
	s[0] = byte(m.choose(3))
	return s
}

// held chooses an ID and a token. Usually the token belongs to the lease with that ID.
func (m *model) held() (ID, Token) {
	id := m.id()
	if l := m.twin.leases[id]; l != nil && m.choose(4) > 0 {
		return id, l.Token
	}
	return id, Token(m.choose(3))
}

// change applies a command that changes a live lease.
func (m *model) change() {
	id, token := m.held()
	ttl, s := TTL(m.span()), m.secret()
	to := Terms{
		Owner: []string{"", "o", "p"}[m.choose(3)], Principal: []string{"", "u"}[m.choose(2)], Secret: s,
	}
	kind := m.choose(4)
	var info Info
	var err error
	switch kind {
	case 0:
		info, err = m.twin.changeTTL(id, token, ttl)
	case 1:
		info, err = m.twin.touch(id, token)
	case 2:
		info, err = m.twin.handOver(id, token, to)
	case 3:
		info, err = m.twin.resume(id, s)
	}
	r := both(m, func(l *Lessor) (r result) {
		switch kind {
		case 0:
			r.info, r.err = l.ChangeTTL(id, token, ttl)
		case 1:
			r.info, r.err = l.Touch(id, token)
		case 2:
			r.info, r.err = l.HandOver(id, token, to)
		case 3:
			r.info, r.err = l.Resume(id, s)
		}
		return r
	})
	m.sameErr("change", r.err, err)
	m.same("change", r.info, info)
}

// advance moves all clocks, sometimes exactly to the next instant at which something happens.
func (m *model) advance(by int64) {
	if next, ok := m.twin.next(); ok && m.choose(2) == 0 {
		by = int64(next - m.twin.now)
	}
	m.twin.now += Instant(by)
	m.twin.settle()
	m.primary.Advance(m.twin.now)
	m.follower.Advance(m.twin.now + modelSkew)
}

func (m *model) clear(id ID) {
	if l := m.twin.leases[id]; l != nil {
		m.apply([]Checkpoint{{ID: id, Token: l.Token}})
	}
}

// lead promotes or demotes the primary. Pending decisions are dropped, because the term fences them
// off.
func (m *model) lead() {
	m.inFlight = nil
	if m.choose(4) == 0 {
		m.twin.demote()
		m.primary.Demote()
		return
	}
	m.twin.promote()
	m.primary.Promote(m.twin.now)
}

// behind reports whether the primary still has due leases to process.
func (m *model) behind() bool { return m.primary.tracker != nil && m.primary.tracker.behind() }

// catchUp makes the primary process all leases that are due. Half of the time it leaves the primary
// behind, to test that as well.
func (m *model) catchUp() {
	if m.behind() && m.choose(2) == 0 {
		return
	}
	for m.behind() {
		m.primary.Advance(m.twin.now)
	}
}

// decide compares the due leases with the twin's. Normally, it expects the first ones. While the
// primary is behind, it accepts any of them, in order.
func (m *model) decide() {
	m.catchUp()
	want := m.twin.due()
	var got []Due
	if most := m.choose(8); m.behind() {
		got = m.primary.Due(most)
		want = slices.DeleteFunc(want, func(d Due) bool { return !slices.Contains(got, d) })
	} else {
		want = want[:min(len(want), most)]
		for looks := 0; len(got) < len(want) && looks < 1000; looks++ {
			got = append(got, m.primary.Due(len(want)-len(got))...)
		}
	}
	if len(got) > 0 || len(want) > 0 {
		m.same("due", got, want)
		m.inFlight = append(m.inFlight, got)
	}
	for _, d := range got {
		if l := m.twin.leases[d.ID]; l != nil {
			l.expiring = true
		}
	}
}

// report compares the silent leases with the twin's. Each call of Silent must return its leases
// ordered by ID, but which leases it returns is unspecified.
func (m *model) report() {
	m.catchUp()
	want := m.twin.silent()
	most := m.choose(8)
	var got []Checkpoint
	for looks := 0; looks == 0 || len(got) < most && m.primary.MoreSilent() && looks < 1000; looks++ {
		part := m.primary.Silent(most - len(got))
		if !slices.IsSortedFunc(part, func(a, b Checkpoint) int { return cmp.Compare(a.ID, b.ID) }) {
			m.failf("silent %v is not in order", part)
		}
		got = append(got, part...)
	}
	if !m.behind() {
		m.same("number of silent leases", len(got), min(len(want), most))
	}
	for _, c := range got {
		m.same("silent", c, want[c.ID])
		if l := m.twin.leases[c.ID]; l != nil {
			l.pending = true
		}
	}
	if len(got) > 0 {
		m.inFlight = append(m.inFlight, got)
	}
}

// outcome resolves the oldest proposal.
func (m *model) outcome(applied bool) {
	if len(m.inFlight) == 0 {
		return
	}
	first := m.inFlight[0]
	m.inFlight = m.inFlight[1:]
	if applied {
		m.apply(first)
		return
	}
	// A decision about another incarnation of a lease is ignored.
	switch list := first.(type) {
	case []Due:
		for _, d := range list {
			if l := m.twin.leases[d.ID]; l != nil && l.Token == d.Token {
				l.expiring = false
			}
		}
		m.primary.Reinstate(list)
	case []Checkpoint:
		for _, c := range list {
			if l := m.twin.leases[c.ID]; l != nil && l.Token == c.Token {
				l.pending = false
			}
		}
		m.primary.Unreport(list)
	}
}

func (m *model) apply(command any) {
	switch list := command.(type) {
	case []Due:
		for _, d := range list {
			e, ok := m.twin.expire(d)
			m.same("expire", both(m, func(l *Lessor) result {
				e, ok := l.Expire(d)
				return result{ended: e, ok: ok}
			}), result{ended: e, ok: ok})
		}
	case []Checkpoint:
		m.twin.checkpoint(list)
		both(m, func(l *Lessor) bool { l.Checkpoint(list); return true })
	}
}

// restore replaces the follower with one that recovers from the primary's state.
func (m *model) restore() {
	v := m.primary.View()
	state := v.State()
	state.Leases = slices.Collect(v.All())
	f := New(m.primary.cfg)
	if err := f.Recover(state); err != nil {
		m.failf("recover: %w", err)
	}
	keys := slices.Sorted(maps.Keys(m.twin.owner))
	err := f.Reattach(len(keys), func(yield func(ID, string) bool) {
		for _, k := range keys {
			if !yield(m.twin.owner[k], k) {
				return
			}
		}
	})
	if err != nil {
		m.failf("attach after recovery: %w", err)
	}
	f.Advance(m.follower.now)
	m.follower = f
}

// check compares the results of every query.
func (m *model) check() error {
	for _, l := range []*Lessor{m.primary, m.follower} {
		if err := l.CheckInvariants(); err != nil {
			m.failf("invariant: %w", err)
		}
	}
	if err := sameState(m.primary, m.follower); err != nil {
		m.failf("S3: %w", err)
	}
	m.checkChanges()
	all := slices.Collect(m.primary.Leases())
	m.same("len", m.primary.Len(), len(m.twin.leases))
	m.same("all", len(all), len(m.twin.leases))
	m.same("attached", m.primary.Attached(), len(m.twin.owner))
	for i, info := range all {
		l := m.twin.leases[info.ID]
		if l == nil || i > 0 && all[i-1].ID >= info.ID {
			m.failf("lease %d: not there, or out of order", info.ID)
			break
		}
		if !equalInfo(info, l.Info) {
			m.failf("lease %+v, want %+v", info, l.Info)
		}
		m.same("keys", m.primary.Keys(info.ID), m.twin.keys(info.ID))
		m.same("loose", m.primary.Loose(info.ID), l.Bound && len(m.twin.keys(info.ID)) == 0)
		m.same("key count", m.primary.KeyCount(info.ID), len(m.twin.keys(info.ID)))
		if named, ok := m.primary.ByName(info.Name); info.Name != "" && (!ok || named.ID != info.ID) {
			m.failf("name %q finds %d", info.Name, named.ID)
		}
	}
	for id := range ID(13) {
		if m.behind() && m.choose(8) > 0 {
			continue // the query would make the primary visit the lease
		}
		got, ok := m.primary.Remaining(id)
		want, ok2 := m.twin.remaining(id)
		m.same("remaining", []any{got, ok}, []any{want, ok2})
	}
	for id := range ID(13) {
		// The query removes the lease from a group that has ended, so it is made only sometimes.
		if l := m.twin.leases[id]; l != nil && m.choose(8) == 0 {
			m.same("group", m.primary.GroupOf(id), l.group)
		}
	}
	for k, id := range m.twin.owner {
		m.same("lease of "+k, m.primary.LeaseOf(k), id)
	}
	m.checkNamed()
	m.checkNext()
	return m.err
}

func runModel(choose func(int) int, steps int) error {
	m := newModel(choose)
	for n := range steps {
		m.step()
		if err := m.check(); err != nil {
			return fmt.Errorf("step %d: %w", n, err)
		}
	}
	return nil
}

// TestTwin compares a primary and its follower with the slow twin and with each other, over random
// sequences of all operations (S3).
func TestTwin(t *testing.T) {
	for seed := range tier.Seeds(20, 100) {
		r := rand.New(rand.NewPCG(seed, 2))
		if err := runModel(r.IntN, 400); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzTwin is TestTwin with choices from the fuzzer.
func FuzzTwin(f *testing.F) {
	f.Add([]byte("\x00\x0d\x01\x00\x00\x01\x05\x09\x07\x09\x00\x0e\x03\x11\x02"))
	f.Add([]byte("a lease is a promise by the issuer to the holder, good for a bounded time"))
	f.Fuzz(func(t *testing.T, in []byte) {
		choose := func(n int) int {
			var v int
			for size := 1; size < n && len(in) > 0; size <<= 8 {
				v = v<<8 | int(in[0])
				in = in[1:]
			}
			return v % n
		}
		m := newModel(choose)
		for n := 0; len(in) > 0 && n < 300; n++ {
			m.step()
			if err := m.check(); err != nil {
				t.Fatalf("step %d: %v", n, err)
			}
		}
	})
}
