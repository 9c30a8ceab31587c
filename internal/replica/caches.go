package replica

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Fill asks, with a [Read], that the reader may cache what he is going to read:
// ranges that lie within what a lease of his holds, and whose cache is open.
type Fill struct {
	// ID and Token are those of the lease.
	ID     lease.ID
	Token  lease.Token
	Ranges []keyrange.Range
	// Term is the answer: the leader's term, in which the cache is told before any of
	// what was read changes; or 0, and nothing of it may be cached.
	Term uint64
}

// OpenCache says what the cache of a lease's holder has, and that what it has to
// drop is to be told to it through this member from now on. [Replica.OpenCache]
// takes it, and Output.Opened returns it once, with Term or Err set.
type OpenCache struct {
	ID lease.ID
	// Token is that of the lease as its holder knows it.
	Token lease.Token
	// Has is all that the cache has. From when its holder has made this list until he
	// learns the answer to this, the last that he asked, he caches nothing more.
	Has []keyrange.Range
	// Term is the answer: the leader's term.
	Term uint64
	// Err is nil; lease.ErrNotFound if there is no such lease, or it holds nothing: then
	// the cache is to drop all that it has; or why there is no outcome.
	Err error
	// Owner is the caller's, to find who waits.
	Owner any

	born uint64 // the tick at which it came
	// from is the member that relayed it, in a life, and seq its number there; 0 if it
	// came from a client of this one.
	from, life, seq uint64
}

// AckCache says what a cache has dropped. It has no answer, and may be lost.
type AckCache struct {
	ID    lease.ID
	Token lease.Token
	// Seq is the number of an Invalidation of Term. It is dropped, and so is what those
	// with lower numbers named. 0 acknowledges none.
	Term, Seq uint64
	// Open is the Term that was the answer to the cache's last OpenCache, 0 if there is
	// none yet. Until the leader has learned it, it believes of the cache that it may have
	// all that the lease holds: the OpenCache that it knows may be an old one.
	Open uint64
	// Dropped is what the cache has given up by itself. What overlaps anything that is
	// being read again, or was since, must not be named.
	Dropped []keyrange.Range
}

// Invalidation is what a cache has to drop, and to acknowledge: all that lies within
// Drop. What it is reading just now and overlaps that it does not keep.
type Invalidation struct {
	ID    lease.ID
	Token lease.Token
	// Term is the leader's, and Seq rises within it.
	Term, Seq uint64
	Drop      []keyrange.Range
}

// origin says through which member something came, and when: of what came from
// one life of one member, a higher number was sent later. The leader itself gives
// no numbers, since nothing overtakes there.
type origin struct{ Member, Life, Number uint64 }

// OpenCache asks the leader to tell this member what a cache has to drop.
func (r *Replica) OpenCache(o OpenCache) {
	o.born = r.ticks
	switch {
	case r.leading:
		r.reads.next.opens = append(r.reads.next.opens, o)
	case r.asks.full():
		o.Err = ErrOverloaded
		r.out.Opened = append(r.out.Opened, o)
	default:
		r.asks.caches.opens = append(r.asks.caches.opens, o)
	}
}

// AckCache tells the leader what a cache has dropped. Of what came in together,
// acknowledgements are given before reads, in the order in which they came.
func (r *Replica) AckCache(a AckCache) {
	switch {
	case r.leading:
		r.acked(&a, origin{Member: r.cfg.ID})
	case len(r.asks.caches.acks) < maxForwarded:
		r.asks.caches.acks = append(r.asks.caches.acks, a)
	}
}

// acked takes an acknowledgement at the leader.
func (r *Replica) acked(a *AckCache, from origin) {
	if d := r.gate.caches; d != nil {
		d.Ack(directory.Ack{
			ID: a.ID, Token: a.Token, Term: a.Term, Seq: a.Seq, Open: a.Open,
			Dropped: a.Dropped, From: directory.Origin(from),
		})
	}
}

// register notes, at the leader, that a cache is going to have what is read, and
// reports whether it may. That counts from before the confirm round: a leader that
// is one no more finds out in the round, and what it has noted is worth nothing.
func (r *Replica) register(f *Fill, from origin) bool {
	f.Term = 0
	d := r.gate.caches
	if d == nil || d.Idle() || !d.Fill(directory.Fill{
		ID: f.ID, Token: f.Token, Ranges: f.Ranges, From: directory.Origin(from),
	}) {
		return false
	}
	f.Term = r.term
	return true
}

// opened answers an OpenCache, when it is certain that this member leads.
func (r *Replica) opened(o OpenCache) {
	from := directory.Origin{Member: r.cfg.ID}
	if o.from != 0 {
		from = directory.Origin{Member: o.from, Life: o.life, Number: o.seq}
	}
	o.Term, o.Err = r.term, nil
	if !r.gate.caches.Open(directory.Opening{ID: o.ID, Token: o.Token, Has: o.Has, From: from}) {
		o.Term, o.Err = 0, lease.ErrNotFound
	}
	r.answerOpen(o)
}

func (r *Replica) answerOpen(o OpenCache) {
	if o.from == 0 {
		r.out.Opened = append(r.out.Opened, o)
		return
	}
	a := r.remote(o.from).answer()
	a.Opened = append(a.Opened, Opened{o.seq, codeOf(o.Err)})
}

// stepCaches takes what another member's caches say.
func (r *Replica) stepCaches(from uint64, f *Forward) {
	for i := range f.Acks {
		r.acked(&f.Acks[i].AckCache, origin{from, f.Base, f.Acks[i].Number})
	}
	for _, o := range f.Opens {
		r.reads.next.opens = append(r.reads.next.opens,
			OpenCache{ID: o.ID, Token: o.Token, Has: o.Has, from: from, life: f.Base, seq: o.Number})
	}
}

// cacheRelay brings what this member's caches say to another leader: that they are
// open until it is answered, what they have dropped once.
type cacheRelay struct {
	opens []OpenCache // not sent
	acks  []AckCache  // likewise
	asked []askedOpen // sent, by number
}

// askedOpen is an OpenCache that was sent.
type askedOpen struct {
	number uint64
	at     uint64 // the tick at which it was sent last
	open   OpenCache
}

func (c *cacheRelay) empty() bool { return len(c.opens)+len(c.asked) == 0 }

// maxCacheBytes bounds what one message to another member says of caches, but for the last thing
// said.
const maxCacheBytes = 4 << 20

// fill adds to m what there is to say, or as much of it as a message has: more says that it has
// room for no more. What a cache has dropped goes before what it is about to read.
func (c *cacheRelay) fill(m *Forward, a *relay, now uint64) (more bool) {
	size, n := 0, 0
	for ; n < len(c.acks) && size < maxCacheBytes; n++ {
		a.last++
		m.Acks = append(m.Acks, NumberedAck{a.last, c.acks[n]})
		size += 64 + rangesSize(c.acks[n].Dropped)
	}
	c.acks = rest(c.acks, n)
	n = 0
	for ; n < len(c.opens) && size < maxCacheBytes; n++ {
		a.last++
		o := c.opens[n]
		c.asked = append(c.asked, askedOpen{a.last, now, o})
		m.Opens = append(m.Opens, NumberedOpen{a.last, o.ID, o.Token, o.Has})
		size += 40 + rangesSize(o.Has)
	}
	c.opens = rest(c.opens, n)
	return len(c.acks)+len(c.opens) > 0 || size >= maxCacheBytes
}

// rest returns what is behind the first n of a list, nil if nothing is.
func rest[T any](list []T, n int) []T {
	if n == len(list) {
		return nil
	}
	return list[n:]
}

// again adds what was said and not answered for that many ticks, as much of it as a message has.
func (c *cacheRelay) again(m *Forward, now, patience uint64) {
	size := 0
	for i := range c.asked {
		if o := &c.asked[i]; now-o.at >= patience && size < maxCacheBytes {
			o.at = now
			m.Opens = append(m.Opens, NumberedOpen{o.number, o.open.ID, o.open.Token, o.open.Has})
			size += 40 + rangesSize(o.open.Has)
		}
	}
}

// rewind takes back what was asked, because another leader has to be. What was
// acknowledged means nothing to that one.
func (c *cacheRelay) rewind() {
	var opens []OpenCache
	for i := range c.asked {
		opens = append(opens, c.asked[i].open)
	}
	c.opens, c.asked, c.acks = append(opens, c.opens...), nil, nil
}

// expire answers what has waited too long.
func (c *cacheRelay) expire(r *Replica, old func(born uint64) bool) {
	stale := func(o OpenCache) bool {
		if old(o.born) {
			o.Err = ErrNoLeader
			r.out.Opened = append(r.out.Opened, o)
		}
		return old(o.born)
	}
	c.opens = slices.DeleteFunc(c.opens, stale)
	c.asked = slices.DeleteFunc(c.asked, func(a askedOpen) bool { return stale(a.open) })
}

// opened takes the leader's answers.
func (c *cacheRelay) opened(r *Replica, m *Reply) {
	for _, n := range m.Opened {
		i, ok := slices.BinarySearchFunc(c.asked, n.Number, func(a askedOpen, n uint64) int {
			return cmp.Compare(a.number, n)
		})
		if !ok {
			continue
		}
		o := c.asked[i].open
		c.asked = cut(c.asked, i, i+1)
		if o.Err = n.Code.err(); o.Err == nil {
			o.Term = m.Term
		}
		r.out.Opened = append(r.out.Opened, o)
	}
}
