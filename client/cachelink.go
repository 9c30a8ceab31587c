package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/internal/message"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
)

// cacheLink keeps a cache connected to the cluster when members or streams fail. Every cache.Cache
// has one.
type cacheLink struct {
	client *Client
	lease  leases.Ref
	to     cachelink.Events
	link   atomic.Pointer[link] // the link that carries call

	mu    sync.Mutex // guards the following fields; held during calls to Opening
	call  *call      // nil if there is none
	last  uint64     // the term in which the cache was last opened
	tries int        // consecutive rejections
	timer *time.Timer
	late  *time.Timer // set by CloseAfter
	over  bool
}

// ForCache returns a grant of a lease whose holder can keep copies of the given ranges. It is for
// package cache only.
func (g Grant) ForCache(_ cachelink.Internal, holds []keyrange.Range) Grant {
	g.holds = holds
	return g
}

// LinkCache connects a cache to the cluster. The lease is the cache's, from Grant.ForCache. It is
// for package cache only.
func (l *Lease) LinkCache(_ cachelink.Internal, to cachelink.Events) (cachelink.Link, error) {
	return l.client.linkCache(l, to)
}

func (c *Client) linkCache(l *Lease, to cachelink.Events) (*cacheLink, error) {
	k := &cacheLink{client: c, lease: l.Ref(), to: to}
	now, err := c.mux.enter(k)
	if err != nil {
		return nil, fmt.Errorf("client: cache of lease %016x: %w", k.lease.ID, err)
	}
	c.caches.add(k)
	if now != nil {
		k.begin(now)
	}
	return k, nil
}

// Close ends the link.
func (k *cacheLink) Close() {
	k.client.mux.exit(k)
	k.client.caches.remove(k)
	k.end(ErrClosed)
}

// CloseAfter implements cachelink.Link.
func (k *cacheLink) CloseAfter(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.late = time.AfterFunc(d, k.Close)
	}
}

// end implements follower.
func (k *cacheLink) end(error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	if k.late != nil {
		k.late.Stop()
	}
	k.stopLocked()
}

func (k *cacheLink) stopLocked() {
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.call != nil {
		k.link.Load().forget(k.call)
	}
	k.call = nil
	k.link.Store(nil)
}

const (
	// maxDropped is the maximum number of ranges in one acknowledgment; members accept at most
	// 10,000. An acknowledgment must also fit into a message.
	maxDropped = 4096
	// rangeBytes is a lower bound on the encoded size of a range, excluding its keys.
	rangeBytes = 16
)

// Ack acknowledges invalidations. If the stream breaks, the acknowledgment is lost, and the
// cluster sends the invalidations again. The caller must not acknowledge a range that has been
// invalidated again.
//
// A large acknowledgment is split into several messages. Each is correct on its own, and all of
// them are sent before later requests.
func (k *cacheLink) Ack(a cachelink.Ack) {
	l := k.link.Load()
	if l == nil {
		return
	}
	a.Dropped = slices.DeleteFunc(slices.Clone(a.Dropped), k.tooLong)
	for first := true; first || len(a.Dropped) > 0; first = false {
		n := fitting(a.Dropped)
		l.note(&pb.Request{Body: &pb.Request_CacheAck{CacheAck: &pb.CacheAck{
			Lease: refMessage(k.lease), Term: a.Term, Seq: a.Seq, OpenTerm: a.Open,
			Dropped: rangeMessages(a.Dropped[:n]),
		}}})
		a.Dropped = a.Dropped[n:]
	}
}

// fitting returns how many ranges fit into one acknowledgment.
func fitting(list []keyrange.Range) (n int) {
	for size := 0; n < len(list) && n < maxDropped && size < maxMessage/2; n++ {
		size += rangeBytes + len(list[n].Key) + len(list[n].End)
	}
	return n
}

// tooLong reports whether a range does not fit into a message. Such ranges are not acknowledged;
// the cluster invalidates them when they are written to.
func (k *cacheLink) tooLong(r keyrange.Range) bool {
	return len(r.Key)+len(r.End) > k.client.most
}

// Fill reads a range linearizably. term is the term in which the cache may keep the range, or 0 if
// the cache must not keep it.
func (k *cacheLink) Fill(
	ctx context.Context, r keyrange.Range,
) (_ store.RangeResult, term uint64, _ error) {
	s := &spec{op: "range", on: r.Key, kind: read}
	m := &pb.RangeRequest{}
	m.Key, m.RangeEnd = message.Span(r.Key, r.End)
	m.Cache = refMessage(k.lease)
	resp, err := k.client.do(ctx, s, &pb.Request{Body: &pb.Request_ReadRange{ReadRange: m}})
	return rangeResult(resp.GetReadRange()), resp.GetReadRange().GetCacheTerm(), err
}

// begin implements follower.
func (k *cacheLink) begin(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.call == nil && !k.over {
		k.beginLocked(l)
	}
}

func (k *cacheLink) beginLocked(l *link) {
	q := &call{kind: watching, request: &pb.Request{Body: &pb.Request_Cache{
		Cache: &pb.CacheRequest{
			Lease: refMessage(k.lease), Cached: rangeMessages(k.to.Opening()), Term: k.last,
		},
	}}}
	q.done = func(r *pb.Response, err error) {
		k.take(l, q, r, err)
		if err == nil {
			return
		}
		// The client may have moved to another link in the meantime.
		if now := k.client.mux.current(); now != nil && now != l {
			k.begin(now)
		}
	}
	if err := k.check(q.request); err != nil {
		k.refusedLocked(err)
		return
	}
	k.link.Store(l)
	k.call = q
	if l.submit(q) != nil {
		k.call = nil // the next link begins the call again
		k.link.Store(nil)
	}
}

// check rejects requests that would break the stream for all callers.
func (k *cacheLink) check(r *pb.Request) error {
	if n := proto.Size(r); n > max(k.client.most, maxMessage)+fixedBytes {
		return fmt.Errorf("%w: the report of cached ranges is too large: %d bytes", ErrInvalid, n)
	}
	return nil
}

// take handles a response, or the error that ends the call. Invalidations count no matter which
// call they arrive on.
func (k *cacheLink) take(l *link, q *call, r *pb.Response, err error) {
	m := r.GetCache()
	if m.GetSeq() != 0 || len(m.GetDrop()) > 0 {
		k.to.Invalidated(cachelink.Notice{Term: m.Term, Seq: m.Seq, Drop: heldOf(m.Drop)})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.call != q: // the call has been abandoned
	case err != nil:
		k.lostLocked() // the next link restarts the call; there may already be one
	case r.GetError() != nil:
		k.lostLocked()
		k.refusedLocked(errorOf(r.GetError()))
	case m.GetReopen():
		l.forget(q)
		k.beginLocked(l)
	case !r.More:
		k.lostLocked()
		k.refusedLocked(ErrUnavailable)
	case m.GetSeq() == 0:
		k.tries, k.last = 0, m.GetTerm()
		k.to.Opened(m.GetTerm())
	}
}

// lostLocked records that the call has ended.
func (k *cacheLink) lostLocked() {
	k.call = nil
	k.link.Store(nil)
	k.to.Opening()
}

// refusedLocked handles a call that was ended by the member.
func (k *cacheLink) refusedLocked(err error) {
	k.to.Refused(err)
	if !isTemporary(err) {
		return
	}
	k.tries++
	k.timer = time.AfterFunc(backOff(k.tries), func() {
		if l := k.client.mux.current(); l != nil {
			k.begin(l)
		}
	})
}

// caches holds the caches of a client.
type caches struct {
	mu   sync.Mutex // held while the list is being changed
	list atomic.Pointer[[]*cacheLink]
}

func (c *caches) add(k *cacheLink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []*cacheLink{k}
	if old := c.list.Load(); old != nil {
		list = append(list, *old...)
	}
	c.list.Store(&list)
}

func (c *caches) remove(k *cacheLink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.list.Load()
	if old == nil {
		return
	}
	list := slices.DeleteFunc(slices.Clone(*old), func(x *cacheLink) bool { return x == k })
	c.list.Store(&list)
	if len(list) == 0 {
		c.list.Store(nil)
	}
}

// writing makes the caches drop the keys that a request may write. This happens before the request
// is sent, so that the write does not have to wait for this client's caches.
func (c *caches) writing(r *pb.Request) {
	list := c.list.Load()
	if list == nil {
		return
	}
	touched := touchedBy(r)
	if len(touched) == 0 {
		return
	}
	for _, k := range *list {
		k.to.Writing(touched)
	}
}

// touchedBy returns the keys that a request may write.
func touchedBy(r *pb.Request) []keyrange.Range {
	switch x := r.Body.(type) {
	case *pb.Request_Put:
		return []keyrange.Range{{Key: string(x.Put.Key)}}
	case *pb.Request_DeleteRange:
		return []keyrange.Range{{Key: string(x.DeleteRange.Key), End: string(x.DeleteRange.RangeEnd)}}
	case *pb.Request_Txn:
		return touchedByTxn(x.Txn, nil)
	case *pb.Request_Grant:
		var out []keyrange.Range
		for _, p := range x.Grant.Keys {
			out = append(out, keyrange.Range{Key: string(p.GetKey())})
		}
		return out
	case *pb.Request_Attach:
		return touchedKeys(x.Attach.Keys)
	case *pb.Request_Detach:
		return touchedKeys(x.Detach.Keys)
	default:
		return nil
	}
}

func touchedKeys(keys [][]byte) []keyrange.Range {
	out := make([]keyrange.Range, len(keys))
	for i, k := range keys {
		out[i].Key = string(k)
	}
	return out
}

// touchedByTxn appends the keys that a transaction may write in either branch.
func touchedByTxn(t *pb.TxnRequest, out []keyrange.Range) []keyrange.Range {
	for _, list := range [][]*pb.Op{t.GetSuccess(), t.GetFailure()} {
		for _, o := range list {
			switch x := o.Op.(type) {
			case *pb.Op_Put:
				out = append(out, keyrange.Range{Key: string(x.Put.GetKey())})
			case *pb.Op_DeleteRange:
				out = append(out, keyrange.Range{
					Key: string(x.DeleteRange.GetKey()), End: string(x.DeleteRange.GetRangeEnd()),
				})
			case *pb.Op_Txn:
				out = touchedByTxn(x.Txn, out)
			}
		}
	}
	return out
}
