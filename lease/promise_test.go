package lease

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"leasehold.dev/test/tier"
)

// A walk runs three members through random changes of the primary. It keeps real time in
// microseconds, which the engine never sees. Each member has its own clock, which started at a
// different moment and rounds down to milliseconds. Commands go through a log that each member
// applies at its own pace. A member leads only after it has applied the entire log.
//
// The walk records in real time what each holder was promised, and compares that with what happens.
type walk struct {
	r       *rand.Rand
	now     int64 // µs
	members [3]*walker
	log     []any // Terms, expiry, []Checkpoint, change
	leader  int   // -1 means no leader
	term    int
	leases  map[ID]*promise
	delays  map[Token]int64 // when the lock delay of each lease ends
	newest  Token
	changes int
	err     error
	ended   int
	refused int
}

type walker struct {
	*Lessor
	began   int64 // real time when its clock showed 0
	applied int   // number of log entries applied
	// bound holds the real time until which this member, as primary, can keep a checkpointed lease
	// alive.
	bound map[ID]int64
}

// expiry is a decision and the term in which it was made (T1).
type expiry struct {
	term int
	due  []Due
}

// change is a command that changes a live lease.
type change struct {
	kind  string
	id    ID
	token Token
	ttl   TTL
	sent  int64
}

// promise is what a holder can rely on. The holder's own clock would give the same result: it
// counts from the send, and in this model the leader receives messages without delay.
type promise struct {
	token Token
	until int64 // µs
	alive bool  // the holder renews occasionally
	// most is an upper bound, in µs, on the TTL that the holder counts with: the smallest TTL that
	// it has requested without learning the outcome.
	most    int64
	unknown bool // the holder never learned the outcome
	waiting []waiting
}

// waiting is a request that is acknowledged once its entry has been applied.
type waiting struct {
	entry int
	token Token
	sent  int64
	most  int64
	what  string
}

// shorten limits the holder before it requests another TTL.
func (p *promise) shorten(now, ttl int64) {
	p.until = min(p.until, now+ttl)
	p.most = min(p.most, ttl)
	for i := range p.waiting {
		p.waiting[i].most = min(p.waiting[i].most, ttl)
	}
}

func (w *walk) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %d µs: "+format, append([]any{w.now}, args...)...)
	}
}

func newWalk(seed uint64) *walk {
	w := &walk{r: rand.New(rand.NewPCG(seed, 3)), leader: -1, leases: map[ID]*promise{}}
	w.delays = map[Token]int64{}
	w.now = 1_000_000
	for i := range w.members {
		w.members[i] = &walker{
			Lessor: New(Config{CheckpointInterval: 40, AtOnce: w.r.IntN(4)}),
			began:  w.r.Int64N(w.now), bound: map[ID]int64{},
		}
	}
	return w
}

func (m *walker) advance(now int64) { m.Advance(Instant((now - m.began) / 1000)) }

// propose appends an entry to the log and returns its index.
func (w *walk) propose(entry any) int {
	w.log = append(w.log, entry)
	return len(w.log)
}

// apply makes a member apply its next log entry.
func (w *walk) apply(i int) {
	m := w.members[i]
	if m.applied == len(w.log) {
		return
	}
	m.advance(w.now)
	entry := w.log[m.applied]
	m.applied++
	switch e := entry.(type) {
	case Terms:
		if info, err := m.Grant(e); err == nil {
			w.begun(i, info, w.now) // the leader counts from when it applies the grant
		}
	case expiry:
		w.expire(i, e)
	case []Checkpoint:
		m.Checkpoint(e)
		for _, c := range e {
			info, ok := m.Lookup(c.ID)
			switch {
			case !ok || info.Token != c.Token || info.Remaining != c.Remaining:
			case c.Remaining == 0:
				delete(m.bound, c.ID)
			default:
				m.bound[c.ID] = w.now + int64(c.Remaining)*1000
			}
		}
	case change:
		w.change(i, e)
	}
	if i == w.leader {
		w.acknowledge(m)
	}
}

// begun records that a new incarnation of a lease has begun. If member i is the leader, it also
// records the promise. The new promise still covers whatever the previous holder can rely on.
func (w *walk) begun(i int, info Info, sent int64) {
	p := w.leases[info.ID]
	if w.newest < info.Token { // the first member to apply it
		w.newest = info.Token
		before := p
		p = &promise{token: info.Token, most: math.MaxInt64, alive: true}
		if before != nil {
			p.until = before.until
			p.waiting = before.waiting // the leader might not have applied them yet
		}
		w.leases[info.ID] = p
	}
	if i == w.leader && p != nil && p.token == info.Token {
		p.until = max(p.until, sent+min(int64(info.TTL)*1000, p.most))
	}
}

func (w *walk) change(i int, e change) {
	m := w.members[i]
	var info Info
	var err error
	switch e.kind {
	case "change TTL":
		info, err = m.ChangeTTL(e.id, e.token, e.ttl)
	case "touch":
		info, err = m.Touch(e.id, e.token)
	case "hand over":
		info, err = m.HandOver(e.id, e.token, Terms{Owner: "other", Secret: Secret{1}})
	case "resume":
		info, err = m.Resume(e.id, Secret{1})
	}
	if err != nil {
		return
	}
	w.changes++
	delete(m.bound, e.id)
	if e.kind == "hand over" || e.kind == "resume" {
		w.begun(i, info, e.sent)
	}
}

// acknowledge answers the callers whose entries the current leader has applied. A caller that no
// longer holds the lease gets no new promise.
func (w *walk) acknowledge(m *walker) {
	for id, p := range w.leases {
		info, ok := m.Lookup(id)
		for len(p.waiting) > 0 && p.waiting[0].entry <= m.applied {
			a := p.waiting[0]
			p.waiting = p.waiting[1:]
			if !ok || info.Token != a.token || info.Token != p.token || info.Delayed {
				continue
			}
			p.until = max(p.until, a.sent+min(int64(info.TTL)*1000, a.most))
			if a.what == "change TTL" && !p.unknown {
				p.most = math.MaxInt64
			}
		}
	}
}

func (w *walk) expire(i int, e expiry) {
	for _, d := range e.due {
		e, ok := w.members[i].Expire(d)
		if !ok {
			continue
		}
		delete(w.members[i].bound, d.ID)
		// Checking the first member that applies it is enough.
		if p := w.leases[d.ID]; p != nil && p.token == d.Token {
			w.ended++
			delete(w.leases, d.ID)
			if w.now < p.until {
				w.failf("L1: lease %d ended, promised until %d", d.ID, p.until)
			}
			if !e.Gone {
				w.delays[d.Token] = w.now + int64(e.LockDelay)*1000
			}
		}
		if until := w.delays[d.Token]; e.Gone && until != 0 {
			delete(w.delays, d.Token)
			if w.now < until {
				w.failf("lease %d is gone, its lock delay runs until %d", d.ID, until)
			}
		}
	}
}

// elect makes a random member the primary of a new term, possibly the same member as before.
// Entries that no member has applied can be lost, along with all entries after them. The new leader
// first applies the rest of the log.
func (w *walk) elect() {
	if w.leader >= 0 {
		w.members[w.leader].Demote()
	}
	committed := 0
	for _, m := range w.members {
		committed = max(committed, m.applied)
	}
	w.log = w.log[:committed+w.r.IntN(len(w.log)-committed+1)]
	w.leader = -1
	for _, p := range w.leases {
		for _, a := range p.waiting { // the holder never learns the outcome
			p.unknown = p.unknown || a.what == "change TTL"
		}
		p.waiting = nil
	}
	next := w.r.IntN(3)
	for w.members[next].applied < len(w.log) {
		w.apply(next)
	}
	w.term++
	w.leader = next
	m := w.members[next]
	m.advance(w.now)
	m.Promote(m.now)
	for info := range m.Leases() {
		// Remaining times that were recovered count from the promotion.
		if _, ok := m.bound[info.ID]; !ok && info.Remaining > 0 {
			m.bound[info.ID] = w.now + int64(info.Remaining)*1000
		}
	}
}

// restart replaces a member with one that recovers from the state applied so far. Its clock
// restarts near zero.
func (w *walk) restart(i int) {
	old := w.members[i]
	v := old.View()
	state := v.State()
	for info := range v.All() {
		state.Leases = append(state.Leases, info)
	}
	w.members[i] = &walker{
		Lessor: New(old.cfg), began: w.now - w.r.Int64N(1000),
		applied: old.applied, bound: map[ID]int64{},
	}
	if err := w.members[i].Recover(state); err != nil {
		w.failf("recover: %v", err)
	}
	if w.leader == i {
		w.leader = -1
	}
}

// lead does what a leader does on each tick. It checks L7: leases past their bound get an expiry
// decision.
func (w *walk) lead() {
	m := w.members[w.leader]
	m.advance(w.now)
	if due := m.Due(100); len(due) > 0 {
		w.propose(expiry{w.term, due})
	}
	if silent := m.Silent(100); len(silent) > 0 {
		w.propose(silent)
	}
	for id, bound := range m.bound {
		p := w.leases[id]
		if info, ok := m.Lookup(id); p != nil && (len(p.waiting) > 0 || ok && info.Token != p.token) {
			continue // renewed or changed hands; its bound is about to be cleared
		}
		// Two milliseconds allow for the rounding of two clocks, and one for the tick.
		if ttl, _ := m.Remaining(id); ttl > 0 && w.now > bound+3000 {
			w.failf("L7: silent lease %d has %d ms left, the bound was %d", id, ttl, bound)
		}
	}
}

// renew sends a renewal that the leader receives at once. It is acknowledged immediately, or, if it
// must clear a checkpoint, once that entry is applied.
func (w *walk) renew(id ID, p *promise) {
	m := w.members[w.leader]
	m.advance(w.now)
	n, err := m.Renew(id, p.token)
	switch {
	case err != nil:
		w.refused++
	case !n.Clear:
		p.until = max(p.until, w.now+min(int64(n.TTL)*1000, p.most))
	default:
		w.wait(p, "renew", []Checkpoint{{ID: id, Token: n.Token}})
	}
}

func (w *walk) wait(p *promise, what string, entry any) {
	p.waiting = append(p.waiting, waiting{w.propose(entry), p.token, w.now, p.most, what})
}

// ask makes a holder, or its successor, request a change.
func (w *walk) ask(id ID, p *promise) {
	e := change{id: id, token: p.token, sent: w.now}
	switch w.r.IntN(4) {
	case 0:
		e.kind, e.ttl = "change TTL", TTL(20+w.r.IntN(150))
		p.shorten(w.now, int64(e.ttl)*1000)
		w.wait(p, e.kind, e)
	case 1:
		e.kind = "touch"
		w.wait(p, e.kind, e)
	case 2:
		e.kind = "hand over"
		p.until, p.alive = min(p.until, w.now), false // the holder stops before the request
		w.propose(e)
	case 3:
		e.kind = "resume"
		w.propose(e)
	}
}

func (w *walk) step() {
	w.now += w.r.Int64N(4000)
	if w.r.IntN(50) == 0 {
		w.now += w.r.Int64N(200_000) // all members pause
	}
	if w.r.IntN(100) == 0 {
		w.restart(w.r.IntN(3))
	}
	if w.leader < 0 || w.r.IntN(60) == 0 {
		w.elect()
	}
	w.lead()
	switch w.r.IntN(3) {
	case 0:
		id := ID(1 + w.r.IntN(4))
		if _, ok := w.members[w.leader].Lookup(id); !ok && w.leases[id] == nil {
			w.propose(Terms{
				ID: id, TTL: TTL(20 + w.r.IntN(150)), Secret: Secret{1},
				LockDelay: TTL(w.r.IntN(50)) * TTL(w.r.IntN(2)),
			})
		}
	case 1:
		for id := range ID(5) {
			if p := w.leases[id]; p != nil && p.alive && w.r.IntN(8) == 0 {
				w.renew(id, p)
				p.alive = w.r.IntN(12) > 0 // the holder sometimes dies afterwards
			}
			if p := w.leases[id]; p != nil && w.r.IntN(40) == 0 {
				w.ask(id, p)
			}
		}
	}
	for i := range w.members {
		for range w.r.IntN(4) {
			w.apply(i)
		}
	}
	for i, m := range w.members {
		if err := m.CheckInvariants(); err != nil {
			w.failf("member %d: %v", i, err)
		}
	}
}

// TestPromises checks L1 and L7 on random walks, including holders that change the TTL, hand over,
// or resume. Elections every few renewals must not keep silent leases alive (T9).
func TestPromises(t *testing.T) {
	ended, refused, changes := 0, 0, 0
	for seed := range tier.Seeds(60, 600) {
		w := newWalk(seed)
		for range 1500 {
			if w.step(); w.err != nil {
				t.Fatalf("seed %d: %v", seed, w.err)
			}
		}
		ended += w.ended
		refused += w.refused
		changes += w.changes
	}
	if ended < 1000 || refused < 10 || changes < 1000 {
		t.Errorf("%d leases ended, %d renewals refused, %d changes: the walk proves little",
			ended, refused, changes)
	}
	t.Logf("%d leases ended, %d renewals refused, %d changes applied", ended, refused, changes)
}
