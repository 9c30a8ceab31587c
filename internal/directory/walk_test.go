package directory

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// walk is a minimal model of the whole service around a Directory. It has a store of versions, a
// log, successive leaders, caches that follow the protocol, and a network that loses, duplicates
// and delays messages. After every step, it checks that every usable cached copy matches the store
// (C1).
type walk struct {
	rng     *rand.Rand
	now     lease.Instant
	dir     *Directory
	term    uint64
	store   map[string]int
	leases  map[lease.ID]*walkLease
	old     walkTokens
	clients []*walkClient
	log     []*proposal // proposed in this term and not yet applied
	net     []func()
	numbers map[uint64]uint64 // last request number by member
	next    lease.ID
	left    uint64 // number of commands settled in this term
	events  []string
	reads   int // number of cached copies checked
	waits   int // number of writes that had to wait
	// The following settings differ for each seed.
	keys []string
	ttl  lease.Instant
	calm int // a larger value makes leader changes and lease ends rarer
	// If steady is set, the leader never changes. A client that renews a lease at the last moment
	// can then keep its copies, because the leader still knows what is pending.
	steady bool
}

type walkLease struct {
	token    lease.Token
	holds    []keyrange.Range
	expiry   lease.Instant
	keys     map[string]bool
	stamp    int
	expiring bool
}

type proposal struct {
	w     *Write
	apply func()
	lost  func()
}

func newWalk(seed uint64) *walk {
	w := &walk{
		rng: rand.New(rand.NewPCG(seed, 3)), now: 1, store: make(map[string]int),
		leases: make(map[lease.ID]*walkLease), numbers: make(map[uint64]uint64), next: 1,
		old: walkTokens{orphans: make(map[lease.Token]Orphan)},
	}
	w.keys = toyKeys[:[]int{3, 6, 16}[w.rng.IntN(3)]]
	w.ttl = []lease.Instant{30, 100, 300}[w.rng.IntN(3)]
	w.steady = w.rng.IntN(3) == 0
	w.calm = []int{3, 10, 40}[w.rng.IntN(3)]
	w.lead()
	return w
}

// Keys implements State, as does Expiry.
func (w *walk) Keys(id lease.ID) iter.Seq[string] {
	if l := w.leases[id]; l != nil {
		return slices.Values(slices.Sorted(maps.Keys(l.keys)))
	}
	return slices.Values([]string(nil))
}

func (w *walk) Expiry(id lease.ID) (lease.Instant, bool) {
	if l := w.leases[id]; l != nil {
		return l.expiry, true
	}
	return 0, false
}

// lead starts another term. A random part of the log is committed, and the rest is lost.
func (w *walk) lead() {
	for n := w.rng.IntN(len(w.log) + 1); n > 0; n-- {
		w.applyOne()
	}
	for _, p := range w.log {
		if p.lost != nil {
			p.lost()
		}
	}
	w.log, w.left = nil, 0
	w.term++
	limits := Limits{
		Drops: 3 + w.rng.IntN(5), DropBytes: 4 + w.rng.IntN(20), Spans: 2 + w.rng.IntN(10),
		Waiting: 30, Links: 10 + int(w.term%20), Invalidated: 1 + int(w.term%4), Expired: 1 + int(w.term%3),
		Freed: 1 + int(w.term%5), Ending: 1 + int(w.term%2),
	}
	w.dir = New(w.term, w, limits)
	for _, id := range slices.Sorted(maps.Keys(w.leases)) {
		l := w.leases[id]
		l.expiry, l.expiring = max(l.expiry, w.now+w.ttl), false
		if len(l.holds) > 0 {
			w.dir.Hold(id, l.token, l.holds, true)
		}
	}
	for _, token := range slices.Sorted(maps.Keys(w.old.orphans)) {
		o := w.old.orphans[token]
		o.Until = w.now + w.ttl
		w.dir.Orphan(o, true)
	}
	w.dir.Advance(w.now)
	w.note("term %d", w.term)
}

func (w *walk) note(format string, args ...any) {
	w.events = append(w.events, fmt.Sprintf("%d: ", w.now)+fmt.Sprintf(format, args...))
}

// post sends a message. It arrives late, twice, or not at all.
func (w *walk) post(f func()) {
	for range []int{1, 1, 1, 1, 1, 2, 0, 1}[w.rng.IntN(8)] {
		w.net = append(w.net, f)
	}
}

func (w *walk) origin(c *walkClient) Origin {
	w.numbers[c.member]++
	return Origin{Member: c.member, Number: w.numbers[c.member]}
}

// propose submits a command to the directory, which admits it or makes it wait.
func (w *walk) propose(p *proposal) {
	p.w.Owner = p
	now, err := w.dir.Admit(p.w)
	switch {
	case err != nil:
		if p.lost != nil {
			p.lost()
		}
	case now:
		w.enter(p)
	default:
		w.waits++
		w.note("waits: %+v", *p.w)
	}
}

func (w *walk) enter(p *proposal) {
	w.dir.Admitted(p.w)
	w.log = append(w.log, p)
}

// applyOne applies the first command of the log.
func (w *walk) applyOne() {
	if len(w.log) == 0 {
		return
	}
	p := w.log[0]
	w.log = w.log[1:]
	p.apply()
	w.outcome(p)
}

func (w *walk) outcome(p *proposal) {
	w.dir.Finish(p.w)
	w.left++
	w.dir.Settled(w.left + 1)
}

func (w *walk) someRange() keyrange.Range {
	r := keyrange.Range{Key: w.keys[w.rng.IntN(len(w.keys))]}
	switch w.rng.IntN(6) {
	case 0:
		r.End = w.keys[w.rng.IntN(len(w.keys))]
	case 1:
		if w.rng.IntN(2) == 0 {
			return keyrange.All
		}
	}
	return r
}

func (w *walk) change(what keyrange.Range) {
	for _, k := range w.keys {
		if what.Contains(k) {
			w.store[k]++
		}
	}
}

func (w *walk) put() {
	what := w.someRange()
	if what.Empty() {
		return
	}
	p := &proposal{w: &Write{Touches: []keyrange.Range{what}}}
	p.apply = func() { w.change(what); w.note("applied a write to %q", what) }
	if id := w.someLease(); id != 0 && what.End == "" && w.rng.IntN(2) == 0 {
		p.w.Attaches = []lease.ID{id}
		if w.rng.IntN(4) == 0 {
			// the lease is not yet known when the write is admitted
			p.w.Attaches, p.w.AttachesAny = nil, true
		}
		p.apply = func() {
			l := w.leases[id]
			if l == nil {
				return
			}
			for _, other := range w.leases {
				delete(other.keys, what.Key)
			}
			l.keys[what.Key] = true
			w.change(what)
			w.note("applied a write to %q on lease %d", what, id)
		}
	}
	w.propose(p)
}

func (w *walk) someLease() lease.ID {
	if ids := slices.Sorted(maps.Keys(w.leases)); len(ids) > 0 {
		return ids[w.rng.IntN(len(ids))]
	}
	return 0
}

func (w *walk) grant() {
	if len(w.leases) > 5 {
		return
	}
	id := w.next
	w.next++
	for _, token := range slices.Sorted(maps.Keys(w.old.orphans)) {
		if w.rng.IntN(3) == 0 {
			id = w.old.orphans[token].ID // reuse the ID of an earlier lease
		}
	}
	var holds []keyrange.Range
	for range w.rng.IntN(3) {
		if r := w.someRange(); !r.Empty() {
			holds = append(holds, r)
		}
	}
	if w.rng.IntN(2) == 0 {
		holds = []keyrange.Range{keyrange.All}
	}
	w.propose(&proposal{w: &Write{}, apply: func() {
		if w.leases[id] != nil {
			return
		}
		l := &walkLease{
			token: w.token(), holds: holds, expiry: w.now + w.ttl, keys: make(map[string]bool),
		}
		w.leases[id] = l
		if len(holds) > 0 {
			w.dir.Hold(id, l.token, holds, false)
			w.clients = append(w.clients, &walkClient{
				id: id, token: l.token, member: 1, valid: w.now + w.ttl, has: make(map[string]int),
			})
		}
	}})
}

// touch renews a lease through the log.
func (w *walk) touch(c *walkClient) {
	sent, token := w.now, c.token
	w.propose(&proposal{
		w: &Write{Renews: []lease.ID{c.id}},
		apply: func() {
			if l := w.leases[c.id]; l != nil && l.token == token {
				l.expiry = max(l.expiry, w.now+w.ttl)
				l.stamp++
				w.post(func() { w.prolong(c, sent+w.ttl) })
			}
		},
	})
}

// renew renews a lease without going through the log. The client receives the renewal only if it is
// then confirmed that the leader still leads.
func (w *walk) renew(c *walkClient) {
	sent := w.now
	w.post(func() {
		l := w.leases[c.id]
		if l == nil || l.token != c.token || l.expiring || w.dir.Pending(c.id) {
			return
		}
		l.expiry = max(l.expiry, w.now+w.ttl)
		w.confirm(func() { // check the lease again after confirmation
			if now := w.leases[c.id]; now == l && l.token == c.token {
				w.post(func() { w.prolong(c, sent+w.ttl) })
			}
		})
	})
}

// confirm calls f some time later, if the term has not changed by that time.
func (w *walk) confirm(f func()) {
	term := w.term
	w.net = append(w.net, func() {
		if w.term == term {
			f()
		}
	})
}

func (w *walk) step() {
	w.act()
	w.now += lease.Instant(w.rng.IntN(4) / 3)
	w.dir.Advance(w.now)
	w.expire()
	w.drop()
	for _, r := range w.dir.Ready() {
		w.enter(r.Owner.(*proposal))
	}
	if w.rng.IntN(3) == 0 {
		w.invalidate()
	}
	if w.rng.IntN(2) == 0 {
		w.dir.NextStep()
	}
	mustBeSound(w.dir)
}

func (w *walk) act() {
	var c *walkClient
	if len(w.clients) > 0 {
		c = w.clients[w.rng.IntN(len(w.clients))]
	}
	switch n := w.rng.IntN(56) - 16; {
	case n < 17 && len(w.net) > 0:
		i := w.rng.IntN(len(w.net))
		f := w.net[i]
		w.net = slices.Delete(w.net, i, i+1)
		f()
	case n < 20:
		w.applyOne()
	case n < 21 && w.rng.IntN(2) == 0:
		w.put()
	case n == 21:
		w.grant()
	case n == 22 && w.rng.IntN(w.calm) == 0:
		w.revoke()
	case n == 23 && !w.steady && w.rng.IntN(w.calm) == 0:
		w.lead()
	case n == 24 && w.rng.IntN(w.calm) == 0:
		w.resume()
	case n == 25 && len(w.log) > 0: // the log rejects the command
		last := len(w.log) - 1
		if p := w.log[last]; last == 0 && p.lost == nil {
			w.log = nil
			w.outcome(p)
		}
	case c == nil:
	case n < 27:
		w.open(c)
	case n < 33:
		w.fill(c)
	case n == 33:
		w.evict(c)
	case n < 37:
		w.renew(c)
	case n == 37:
		w.touch(c)
	}
}

// check compares usable cached copies with the store.
func (w *walk) check() error {
	for _, c := range w.clients {
		if w.now >= c.valid {
			continue
		}
		for k, version := range c.has {
			if w.reads++; version != w.store[k] {
				return fmt.Errorf("cache %d has version %d of %q at %d, the store has %d",
					c.id, version, k, w.now, w.store[k])
			}
		}
	}
	return nil
}

// TestWalk (C1, T20) checks that a cache with a valid lease has only copies that match the store,
// whichever messages are lost, late or duplicated, and whichever member leads. Once the network
// works again, every write proceeds by the time that the leases of unresponsive caches have ended.
func TestWalk(t *testing.T) {
	seeds := uint64(tier.Budget(40, 400))
	reads, waits := 0, 0
	for seed := range seeds {
		w := newWalk(seed)
		for range 1500 {
			w.step()
			if err := w.check(); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, tail(w.events))
			}
		}
		for _, x := range w.dir.Waiting() {
			w.note("at the end: %+v", *x)
		}
		for end := w.now + 3*w.ttl; w.now < end; w.now++ {
			for w.dir.Advance(w.now); w.dir.Behind(); w.dir.Advance(w.now) {
				w.dir.NextStep()
				w.dir.Invalidations()
			}
			w.expire()
			w.drop()
			for _, r := range w.dir.Ready() {
				w.enter(r.Owner.(*proposal))
			}
			for len(w.log) > 0 {
				w.applyOne()
			}
		}
		if n := len(w.dir.Waiting()); n > 0 {
			t.Fatalf("seed %d: %d writes wait for ever\n%s", seed, n, tail(w.events))
		}
		if len(w.old.orphans) > 0 {
			t.Fatalf("seed %d: orphans stay for ever: %v\n%s", seed, w.old.orphans, tail(w.events))
		}
		reads, waits = reads+w.reads, waits+w.waits
	}
	t.Logf("%d copies were looked at, %d writes waited", reads, waits)
	if reads < int(seeds)*500 || waits < 4*int(seeds) {
		t.Errorf("%d copies, %d writes that waited: the walk shows nothing", reads, waits)
	}
}

func tail(events []string) (out string) {
	for _, e := range events[max(0, len(events)-40):] {
		out += e + "\n"
	}
	return out
}

// mustBeSound panics if the directory's invariants are violated.
func mustBeSound(d *Directory) {
	if err := d.CheckInvariants(); err != nil {
		panic(err)
	}
}
