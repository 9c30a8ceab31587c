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

// Cache is where a cache is open: what it has to be told goes there. Its methods are called
// on the core's goroutine and must not block.
type Cache interface {
	// Opened is the outcome of an OpenCache.
	Opened(term uint64, err error)
	// Invalidated says what the cache has to drop.
	Invalidated(i *replica.Invalidation)
	// Reopen says that there is a new leader, who has to know what the cache has.
	Reopen(term uint64)
}

// Cacher brings what caches say to the leader, and what the leader says to caches.
type Cacher interface {
	// OpenCache says what a cache has, and that what it has to be told is told to that
	// Cache from now on, and to no other.
	OpenCache(o replica.OpenCache, to Cache) error
	// AckCache says what a cache has dropped. It means nothing if the cache is open
	// elsewhere by now.
	AckCache(a replica.AckCache, from Cache)
	// CloseCache says that nothing more can be told there.
	CloseCache(of fsm.Holding, to Cache)
}

const (
	// maxHas bounds the ranges that a cache says it has, or has dropped.
	maxHas = 10_000
	// maxDrops bounds the ranges that a cache has to be told to drop and, since the
	// client does not read, has not been. Beyond it, it is told to drop everything.
	maxDrops = 4096
	// maxDropBytes bounds the bytes of their keys likewise.
	maxDropBytes = 1 << 20
)

// caches are those that are open on one stream. It is a feed.
type caches struct {
	node Node
	wake func()

	mu     sync.Mutex // guards what follows, and what the caches are to be told
	open   map[uint64]*cache
	last   map[fsm.Holding]*cache // the one that was opened last
	ready  []*cache               // that have something to be told, each once
	closed bool                   // none may be opened any more
}

// cache is one of them. It implements Cache.
type cache struct {
	feed *caches
	id   uint64 // of the request
	ref  replica.OpenCache

	// What the cache is to be told, guarded by the feed's mu.
	queued bool // it is in ready
	opened bool
	term   uint64 // of the opening, or the new one
	reopen bool
	notice *replica.Invalidation
	end    bool
	err    error
}

// of says under which lease and token the cache holds something.
func (x *cache) of() fsm.Holding { return fsm.Holding{ID: x.ref.ID, Token: x.ref.Token} }

func newCaches(n Node, wake func()) *caches {
	return &caches{
		node: n, wake: wake, open: make(map[uint64]*cache), last: make(map[fsm.Holding]*cache),
	}
}

// begin opens a cache, unless the stream has ended: who receives learns of that late, and
// what is opened then would never acknowledge anything.
func (c *caches) begin(id uint64, r *pb.CacheRequest) error {
	if err := checkCacheRef(r.GetLease()); err != nil {
		return err
	}
	if len(r.Has) > maxHas {
		return invalid("has names %d ranges, %d are the most", len(r.Has), maxHas)
	}
	o := replica.OpenCache{
		ID: lease.ID(r.Lease.Id), Token: lease.Token(r.Lease.Token), Has: rangesOf(r.Has),
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
	if closed { // meanwhile, and perhaps before it was open
		c.node.CloseCache(x.of(), x)
	}
	return nil
}

// cacheNeeds returns what a cache needs: its lease, and to read all that it holds, since it is told
// which keys of that change.
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

// has reports whether a cache is open here.
func (c *caches) has(of fsm.Holding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.last[of]
	return x != nil && !x.end
}

// ack passes an acknowledgement on. A list that is too long is left out: that the cache has
// what it has dropped by itself may be believed, but a write may wait for the rest.
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
		ID: x.ref.ID, Token: x.ref.Token, Term: a.Term, Seq: a.Seq, Open: a.Open,
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
	x.tell(func() { x.end, x.err = true, why })
}

// close closes all, as the stream ends, and those that are about to be opened.
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

// next implements feed. Of each cache it returns one response at a time: what it is to be
// told first comes first.
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

// tell changes what the cache is to be told.
func (x *cache) tell(change func()) {
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
	x.tell(func() {
		if err != nil {
			x.end, x.err = true, err
			return
		}
		x.opened, x.term = true, term
	})
}

// Reopen implements Cache.
func (x *cache) Reopen(term uint64) {
	x.tell(func() { x.opened, x.reopen, x.term = false, true, term })
}

// Invalidated implements Cache. What is not told yet is told together: the number of the
// later acknowledges both. A client that does not read is told to drop everything, so that
// it costs this member no more.
func (x *cache) Invalidated(i *replica.Invalidation) {
	x.tell(func() {
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

// joined returns the ranges of both lists, each once; or all keys, if those are many, or long.
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

// fillJob is the job of a read whose reader may cache what it reads.
func (s *store) fillJob(r *pb.RangeRequest) (job, error) {
	plain := &pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd}
	if !proto.Equal(r, &pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd, Cache: r.Cache}) {
		return job{}, invalid("what is read to be cached must be all of a range, linearizably, " +
			"so of the other fields only key and range_end may be set")
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
