package sim

import (
	"fmt"
	"slices"

	"leasehold.dev/internal/copies"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// cache is a client's coherent cache. It corresponds to the part of package cache that surrounds a
// copies.Set, but runs in virtual time. Its lease belongs to a session and has no grace period, so
// the cache is emptied as soon as the lease is invalid.
type cache struct {
	c      *client
	s      *session
	holds  []keyrange.Range
	set    *copies.Set[mvcc.KeyValue]
	at     uint64   // the member that serves the stream
	proc   *process // the process that serves the stream, once it has sent something
	due    Time     // earliest arrival of the next message, since messages stay in order
	stream *cacheStream
	// request is the number of the last request to open the cache.
	request int
	dead    bool
	// over is set once the lease has ended. The cache is then empty, and reports that to the
	// member.
	over bool
}

// cached lists the ranges that caches hold and programs write.
var cached = [...]keyrange.Range{{Key: "r", End: "s"}, {Key: "k0", End: "k5"}}

// cacher opens caches, one at a time. It reads through the current cache and also writes.
func (t *thread) cacher() {
	w := t.c.w
	for {
		x := t.openCache()
		if x == nil {
			t.think()
			continue
		}
		for !x.dead && !w.chance(60) {
			t.sleep(w.exp(w.p.Think / 8))
			t.useCache(x)
		}
		switch {
		case x.dead:
		case w.chance(2): // the cache is closed
			x.send(x.set.Close())
			t.revoke(x.s)
		default: // the cache is abandoned and answers no more messages
			x.dead = true
			x.s.rest()
		}
	}
}

// openCache obtains a lease with cache holds and opens a cache for it.
func (t *thread) openCache() *cache {
	w := t.c.w
	holds := slices.Clone(cached[w.rng.IntN(len(cached)):])
	if w.chance(3) {
		holds = []keyrange.Range{{Key: "k1", End: "r3"}}
	}
	terms := lease.Terms{
		ID:  lease.ID(w.rng.Int64N(1<<40) + 1),
		TTL: lease.TTL(w.between(300*Millisecond, maxCacheTTL) / Millisecond),
	}
	t.c.owned(&terms)
	op := t.command(&fsm.Grant{Terms: terms, Holds: holds})
	if op.Outcome != Done || op.Fsm.Err != nil {
		return nil
	}
	info := granted(&op.Fsm)
	x := &cache{c: t.c, holds: holds, at: t.c.at}
	x.set = copies.New(copies.Config[mvcc.KeyValue]{
		Holds:      holds,
		MaxEntries: 4 + w.rng.IntN(20), MaxBytes: 1 << 20,
		Key:  func(kv *mvcc.KeyValue) string { return kv.Key },
		Size: func(*mvcc.KeyValue) int { return 1 },
	})
	s := &session{k: t.c.keeper, terms: info.Terms, token: info.Token, cache: x}
	h := holder.Held{
		ID: info.ID, Token: info.Token, TTL: info.TTL,
		Sent: lease.Instant(op.LocalStart / Millisecond),
	}
	w.leases = append(w.leases, info.ID)
	if x.s = t.c.keeper.add(s, h); x.s == nil {
		return nil
	}
	x.open()
	return x
}

// maxCacheTTL limits how long an unresponsive cache delays others.
const maxCacheTTL = 4 * Second

// useCache performs a random operation with a cache.
func (t *thread) useCache(x *cache) {
	w := t.c.w
	what := x.randomRange()
	if p := w.members[x.at-1].proc; p != x.proc && x.proc != nil && w.chance(4) {
		x.move() // the cache detects that its member has restarted
		return
	}
	switch w.rng.IntN(40) {
	case 0:
		x.move()
	case 1, 2:
		x.drop(what)
	case 3:
		if what.End == "" {
			x.drop(what) // drop the range before the write is sent
			t.write(what.Key)
		}
	case 4:
		if other := w.someCache(); w.chance(4) && other != nil {
			t.command(&fsm.Revoke{ID: other.s.terms.ID}) // another client revokes the lease
		}
	default:
		t.readCached(x, what)
	}
}

// write performs a random kind of write to a key.
func (t *thread) write(key string) {
	put := &fsm.Put{Key: key, Value: t.c.w.value()}
	if t.c.w.chance(2) {
		t.command(put)
		return
	}
	never := fsm.Compare{Key: key, Target: fsm.TargetVersion, Relation: fsm.Equal, Number: -1}
	t.command(&fsm.Txn{Compare: []fsm.Compare{never}, Else: []fsm.Op{{Put: put}}})
}

// someCache returns a cache in use, or nil.
func (w *world) someCache() *cache {
	c := w.clients[w.rng.IntN(len(w.clients))]
	for _, s := range c.keeper.sessions {
		if s.cache != nil {
			return s.cache
		}
	}
	return nil
}

// peeker only reads from the client's caches, even while other threads wait for an answer.
func (t *thread) peeker() {
	w := t.c.w
	for {
		t.sleep(w.exp(w.p.Think / 8))
		for _, s := range t.c.keeper.sessions {
			if s.cache != nil && s.cache.s == s {
				t.hit(s.cache, s.cache.randomRange())
				break
			}
		}
	}
}

// randomRange returns a random range within the cache's holds, usually a single key.
func (x *cache) randomRange() keyrange.Range {
	w := x.c.w
	what := x.holds[w.rng.IntN(len(x.holds))]
	if !w.chance(4) {
		what = keyrange.Range{Key: fmt.Sprintf("%s%d", what.Key[:1], w.rng.IntN(5))}
	}
	return what
}

// hit reads a range from the cache and reports whether the range was cached.
func (t *thread) hit(x *cache, what keyrange.Range) bool {
	w := t.c.w
	values, revision, gaps := x.set.Range(what)
	if len(gaps) > 0 || !x.s.alive() {
		return false
	}
	op := &Op{
		ID: len(w.h.Ops), Client: t.c.id, Member: x.at, Kind: opCached,
		Request: Request{Range: &fsm.Range{Key: what.Key, End: what.End}},
		Start:   w.now, LocalStart: t.c.local(), Caller: t.c.user,
	}
	w.h.Ops = append(w.h.Ops, op)
	if w.chance(8) { // a pause after reading the copy and before reading the clock
		t.sleep(w.exp(100 * Millisecond))
	}
	op.End, op.Outcome = w.now, Failed
	if !x.s.alive() {
		return true
	}
	got := &mvcc.RangeResult{Revision: revision, Count: int64(len(values))}
	for i := range values {
		got.KVs = append(got.KVs, &values[i])
	}
	op.Outcome, op.Answer.Range = Done, got
	w.cover["cached read"]++
	if x.c.cut {
		w.cover["cached read of who is cut off"]++
	}
	return true
}

// readCached reads a range from the cache. On a miss, it reads through the cache, which then keeps
// the range.
func (t *thread) readCached(x *cache, what keyrange.Range) {
	w := t.c.w
	if t.hit(x, what) {
		return
	}
	request := Request{Range: &fsm.Range{Key: what.Key, End: what.End}}
	fill := x.set.Begin(what)
	if fill == nil {
		t.do(&Op{Kind: opRange, Request: request})
		return
	}
	request.Cache = &replica.Fill{
		ID: x.s.terms.ID, Token: x.s.token, Ranges: []keyrange.Range{what},
	}
	op := t.through(x, &Op{Kind: opRange, Request: request})
	if op.Outcome != Done || op.Err != nil {
		x.set.Cancel(fill)
		return
	}
	a := copies.Answer[mvcc.KeyValue]{Term: op.CacheTerm, Revision: op.Answer.Range.Revision}
	for _, kv := range op.Answer.Range.KVs {
		a.Values = append(a.Values, *kv)
	}
	if x.set.Complete(fill, a) {
		w.cover["read into a cache"]++
	} else if op.CacheTerm == 0 {
		w.cover["read that may not be cached"]++
	}
}

// through is like do, but uses the cache's stream.
func (t *thread) through(x *cache, op *Op) *Op {
	w := t.c.w
	q := &call{op: op, c: t.c, who: t, token: t.token}
	t.call = q
	op.ID, op.Client, op.Member = len(w.h.Ops), t.c.id, x.at
	op.Start, op.LocalStart = w.now, t.c.local()
	w.h.Ops = append(w.h.Ops, op)
	w.after(w.p.Timeout, func() { q.end(Unknown, errTimeout) })
	x.post(func(p *process) {
		q.proc = p
		p.mail.calls = append(p.mail.calls, q)
	})
	t.park()
	t.call = nil
	q.finish()
	if op.Outcome != Done && !x.dead {
		x.move()
	}
	return op
}

// post sends a message to the cache's member. Messages on one stream stay in order.
func (x *cache) post(f func(*process)) {
	w := x.c.w
	if x.c.cut || x.dead && !x.over {
		return
	}
	at := x.at
	x.due = max(x.due, w.now+w.p.Delay/4+w.exp(w.p.Delay))
	w.at(x.due, func() {
		if p := w.members[at-1].proc; p != nil && !x.c.cut {
			if at == x.at {
				x.proc = p
			}
			f(p)
			p.wake(w.now)
		}
	})
}

// receive delivers a message to the cache. If the client is paused, delivery waits until it
// resumes.
func (x *cache) receive(f func()) {
	w := x.c.w
	switch {
	case x.dead && !x.over || x.c.cut:
	case x.c.paused > w.now:
		w.at(x.c.paused, func() { x.receive(f) })
	default:
		f()
	}
}

// answer delivers a message from a member to the cache. The message may be delayed or lost.
func (x *cache) answer(f func()) {
	w := x.c.w
	if w.rng.IntN(1e6) < w.p.Loss {
		w.cover["message to a cache lost"]++
		return
	}
	w.after(w.p.Delay/4+w.exp(w.p.Delay), func() { x.receive(f) })
}

// open reports to the member what the cache holds.
func (x *cache) open() {
	w := x.c.w
	x.request++
	request := x.request
	o := &replica.OpenCache{ID: x.s.terms.ID, Token: x.s.token, Has: x.set.Reopen()}
	stream := &cacheStream{x: x, request: request}
	x.stream = stream
	x.post(func(p *process) {
		stream.p = p
		of := fsm.Holding{ID: o.ID, Token: o.Token}
		p.mail.Caches = append(p.mail.Caches, shell.CacheMail{From: stream, Of: of, Open: o})
	})
	w.after(w.p.Timeout, func() {
		if x.request == request && !x.set.Open() {
			x.receive(x.move)
		}
	})
}

// cacheStream is the member's end of the stream on which a cache is open.
type cacheStream struct {
	x       *cache
	request int
	p       *process // nil until the request arrives
}

var _ shell.Cache = (*cacheStream)(nil)

// Opened implements shell.Cache.
func (s *cacheStream) Opened(term uint64, err error) {
	s.x.answer(func() { s.x.opened(s.request, term, err) })
}

// Invalidated implements shell.Cache.
func (s *cacheStream) Invalidated(n *replica.Invalidation) {
	i := *n
	s.x.answer(func() { s.x.invalidate(&i) })
}

// Reopen implements shell.Cache.
func (s *cacheStream) Reopen(uint64) {
	s.x.answer(func() {
		if s.x.proc == s.p {
			s.x.open()
		}
	})
}

// opened processes the answer to a request to open the cache. Only the answer to the last request
// counts.
func (x *cache) opened(request int, term uint64, err error) {
	w := x.c.w
	switch {
	case request != x.request || x.set.Open():
	case x.dead && err == nil:
		x.send(copies.Report{Open: term}) // the cache is still empty
	case err == nil:
		w.cover["cache opened"]++
		x.set.Opened(term)
		x.sendReport(true)
	case err == lease.ErrNotFound: //nolint:errorlint // from a member of the world
		x.end()
	default:
		x.move()
	}
}

// move reopens the cache, possibly at another member.
func (x *cache) move() {
	if x.dead {
		return
	}
	x.at = x.c.w.anyMember()
	x.proc = nil
	x.open()
}

// drop drops a range on the cache's own initiative and reports that later.
func (x *cache) drop(what keyrange.Range) {
	x.set.Drop(what)
	x.sendReport(!x.c.w.chance(3))
}

// sendReport reports what the cache has dropped.
func (x *cache) sendReport(lazy bool) {
	if report, ok := x.set.TakeReport(lazy); ok {
		x.send(report)
	}
}

func (x *cache) send(report copies.Report) {
	a := replica.AckCache{
		ID: x.s.terms.ID, Token: x.s.token, Term: report.Term, Seq: report.Seq, Open: report.Open,
		Dropped: report.Dropped,
	}
	from := x.stream
	x.post(func(p *process) {
		of := fsm.Holding{ID: a.ID, Token: a.Token}
		p.mail.Caches = append(p.mail.Caches, shell.CacheMail{From: from, Of: of, Ack: &a})
	})
}

// invalidate drops the ranges listed in the invalidation and acknowledges it.
func (x *cache) invalidate(n *replica.Invalidation) {
	x.c.w.cover["invalidation"]++
	x.set.Invalidate(n.Term, n.Seq, n.Drop)
	x.sendReport(true)
}

// end ends the cache's lease.
func (x *cache) end() {
	if !x.dead {
		x.dead, x.over = true, true
		x.send(x.set.Close())
	}
}

// lostCaches handles the end of a process and its connections.
func (c *client) lostCaches(p *process) {
	for _, s := range c.keeper.sessions {
		if x := s.cache; x != nil && x.proc == p {
			c.w.after(c.w.exp(c.w.p.Delay), func() { x.receive(x.move) })
		}
	}
}
