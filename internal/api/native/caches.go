package native

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// A Cache receives the leader's messages for an open cache. The core calls these methods on the
// core's goroutine, so they must not block.
type Cache interface {
	// Opened reports the outcome of OpenCache.
	Opened(term uint64, err error)
	// Invalidated reports ranges that the cache must drop.
	Invalidated(i *replica.Invalidation)
	// Reopen reports that there is a new leader. The cache must report its contents to it.
	Reopen(term uint64)
}

const (
	// maxHas limits the number of ranges in one message from a cache.
	maxHas = 10_000
	// maxDrops and maxDropBytes limit the invalidations that a client has not read yet: the number
	// of ranges and the total size of their keys. A client that exceeds either limit must drop
	// everything.
	maxDrops     = 4096
	maxDropBytes = 1 << 20
)

// caches contains the open caches of one stream. It is a feed.
type caches struct {
	node Node
	wake func()

	mu     sync.Mutex // guards the fields below, and the messages of all caches
	open   map[uint64]*cache
	last   map[fsm.Holding]*cache // the most recently opened cache
	ready  []*cache               // caches with a message to send, each at most once
	closed bool
}

// cache is one open cache. It implements Cache.
type cache struct {
	feed *caches
	id   uint64 // ID of the request
	ref  replica.OpenCache

	// Messages that have not been sent yet. The feed's mu guards them.
	queued bool // whether the cache is in ready
	opened bool
	term   uint64 // term in which the cache was opened, or the new term
	reopen bool
	notice *replica.Invalidation
	end    bool
	err    error
}

// of returns the lease and token for which the cache holds ranges.
func (x *cache) of() fsm.Holding { return fsm.Holding{ID: x.ref.ID, Token: x.ref.Token} }

func newCaches(n Node, wake func()) *caches {
	return &caches{
		node: n, wake: wake, open: make(map[uint64]*cache), last: make(map[fsm.Holding]*cache),
	}
}

// begin opens a cache unless the stream has ended. This check is needed because the receiving
// goroutine may detect the end late. A cache opened after the end would never acknowledge anything.
func (c *caches) begin(id uint64, r *pb.CacheRequest) error {
	if err := checkCacheRef(r.GetLease()); err != nil {
		return err
	}
	if len(r.Cached) > maxHas {
		return invalid("cached contains %d ranges; the limit is %d", len(r.Cached), maxHas)
	}
	o := replica.OpenCache{
		ID: lease.ID(r.Lease.Id), Token: lease.Token(r.Lease.Token), Has: rangesOf(r.Cached),
	}
	x := &cache{feed: c, id: id, ref: o}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return api.ErrStopped
	}
	c.open[id], c.last[x.of()] = x, x
	c.mu.Unlock()
	err := c.node.OpenCache(o, x)
	if err != nil {
		c.forget(x)
		return err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed { // the stream may have ended before OpenCache was called
		c.node.CloseCache(x.of(), x)
	}
	return nil
}

// cacheNeeds returns the permissions that a cache needs: to hold its lease, and to read every range
// that the lease holds. Invalidations would otherwise reveal which keys change.
func (s *store) cacheNeeds(ctx context.Context, r *pb.CacheRequest) (*api.Need, error) {
	n := new(api.Need)
	if !s.node.View().Access.Enabled() {
		return n, nil
	}
	id, found := lease.ID(r.GetLease().GetId()), false
	err := s.node.Inspect(ctx, func(l *lease.Lessor) {
		var info lease.Info
		info, found = l.Lookup(id)
		n.Lease, n.Reads = fsm.BelongsTo(&info), slices.Clone(s.node.Holds(id))
	})
	if err == nil && !found {
		err = lease.ErrNotFound
	}
	n.Holds = true
	return n, err
}

// has reports whether this stream has an open cache for the lease and token.
func (c *caches) has(of fsm.Holding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.last[of]
	return x != nil && !x.end
}

// ack passes an acknowledgement to the leader. If the list of dropped ranges is too long, ack omits
// it. It is harmless if the leader believes that the cache still holds these ranges, but the
// acknowledgement must arrive.
func (c *caches) ack(a *pb.CacheAck) {
	c.mu.Lock()
	x := c.last[fsm.Holding{
		ID: lease.ID(a.GetLease().GetId()), Token: lease.Token(a.GetLease().GetToken()),
	}]
	c.mu.Unlock()
	if x == nil {
		return
	}
	if len(a.Dropped) > maxHas {
		a.Dropped = nil
	}
	c.node.AckCache(replica.AckCache{
		ID: x.ref.ID, Token: x.ref.Token, Term: a.Term, Seq: a.Seq, Open: a.OpenTerm,
		Dropped: rangesOf(a.Dropped),
	}, x)
}

// end implements feed.
func (c *caches) end(id uint64) { c.refuse(id, nil) }

// refuse implements feed.
func (c *caches) refuse(id uint64, why error) {
	c.mu.Lock()
	x := c.open[id]
	c.mu.Unlock()
	if x == nil {
		return
	}
	c.node.CloseCache(x.of(), x)
	x.update(func() { x.end, x.err = true, why })
}

// close closes all caches when the stream ends, including caches that are being opened.
func (c *caches) close() {
	c.mu.Lock()
	c.closed = true
	list := make([]*cache, 0, len(c.open))
	for _, x := range c.open {
		list = append(list, x)
	}
	c.mu.Unlock()
	for _, x := range list {
		c.node.CloseCache(x.of(), x)
	}
}

func (c *caches) forget(x *cache) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(x)
}

func (c *caches) forgetLocked(x *cache) {
	delete(c.open, x.id)
	if c.last[x.of()] == x {
		delete(c.last, x.of())
	}
}

// next implements feed. It returns the messages of a cache one at a time, the most urgent first.
func (c *caches) next() *pb.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ready) > 0 {
		x := c.ready[0]
		if r := x.nextLocked(); r != nil {
			if !r.More {
				c.forgetLocked(x)
			}
			return r
		}
		x.queued = false
		c.ready[0] = nil
		c.ready = c.ready[1:]
	}
	return nil
}

func (x *cache) nextLocked() *pb.Response {
	m := &pb.CacheResponse{}
	switch {
	case x.end:
		if x.feed.open[x.id] != x {
			return nil
		}
		r := &pb.Response{Id: x.id}
		if x.err != nil {
			e := api.ErrorMessage(x.err, api.ReadReason(x.err))
			r.Body = &pb.Response_Error{Error: e}
		}
		return r
	case x.opened:
		x.opened = false
		m.Term = x.term
	case x.notice != nil:
		m.Term, m.Seq, m.Drop = x.notice.Term, x.notice.Seq, rangeMessages(x.notice.Drop)
		x.notice = nil
	case x.reopen:
		x.reopen = false
		m.Term, m.Reopen = x.term, true
	default:
		return nil
	}
	return &pb.Response{Id: x.id, More: true, Body: &pb.Response_Cache{Cache: m}}
}

// update changes the pending messages of the cache and adds it to ready.
func (x *cache) update(change func()) {
	c := x.feed
	c.mu.Lock()
	change()
	if !x.queued {
		x.queued = true
		c.ready = append(c.ready, x)
	}
	first := len(c.ready) == 1
	c.mu.Unlock()
	if first {
		c.wake()
	}
}

// Opened implements Cache.
func (x *cache) Opened(term uint64, err error) {
	x.update(func() {
		if err != nil {
			x.end, x.err = true, err
			return
		}
		x.opened, x.term = true, term
	})
}

// Reopen implements Cache.
func (x *cache) Reopen(term uint64) {
	x.update(func() { x.opened, x.reopen, x.term = false, true, term })
}

// Invalidated implements Cache. Invalidations that have not been sent are merged. An
// acknowledgement of the higher number covers both.
func (x *cache) Invalidated(i *replica.Invalidation) {
	x.update(func() {
		if x.notice == nil {
			x.notice = &replica.Invalidation{Term: i.Term, Seq: i.Seq, Drop: i.Drop}
			return
		}
		if n := x.notice; i.Term > n.Term || i.Term == n.Term && i.Seq > n.Seq {
			n.Term, n.Seq = i.Term, i.Seq
		}
		x.notice.Drop = joined(x.notice.Drop, i.Drop)
	})
}

// joined returns the ranges of both lists without duplicates. If they exceed the limits, it returns
// the range of all keys.
func joined(a, b []keyrange.Range) []keyrange.Range {
	out := slices.Concat(a, b)
	slices.SortFunc(out, keyrange.Range.Compare)
	out = slices.Compact(out)
	size := 0
	for _, r := range out {
		size += len(r.Key) + len(r.End)
	}
	if len(out) > maxDrops || size > maxDropBytes {
		return []keyrange.Range{keyrange.All}
	}
	return out
}

func rangesOf(list []*pb.KeyRange) []keyrange.Range {
	if len(list) == 0 {
		return nil
	}
	out := make([]keyrange.Range, len(list))
	for i, m := range list {
		out[i] = keyrange.Range{Key: string(m.GetKey()), End: string(m.GetRangeEnd())}
	}
	return out
}

func rangeMessages(list []keyrange.Range) []*pb.KeyRange {
	if len(list) == 0 {
		return nil
	}
	out := make([]*pb.KeyRange, len(list))
	for i, r := range list {
		out[i] = &pb.KeyRange{Key: []byte(r.Key), RangeEnd: []byte(r.End)}
	}
	return out
}

// fillJob returns the job for a read whose result will be cached by the reader.
func (s *store) fillJob(r *pb.RangeRequest) (job, error) {
	plain := &pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd}
	if !proto.Equal(r, &pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd, Cache: r.Cache}) {
		return job{}, invalid("a read for a cache must be linearizable and read a whole range: " +
			"set no fields other than key, range_end and cache")
	}
	if err := checkCacheRef(r.Cache); err != nil {
		return job{}, err
	}
	j, err := s.rangeJob(plain)
	if err != nil {
		return job{}, err
	}
	read, fill := j.answer, &replica.Fill{
		ID: lease.ID(r.Cache.Id), Token: lease.Token(r.Cache.Token),
		Ranges: []keyrange.Range{{Key: string(r.Key), End: string(r.RangeEnd)}},
	}
	j.fill = fill
	j.answer = answer(func(v *fsm.View, res *fsm.Result) (proto.Message, error) {
		m, err := read.answer(v, res)
		if err == nil {
			m.(*pb.RangeResponse).CacheTerm = fill.Term
		}
		return m, err
	})
	return j, nil
}
