package native

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// fakeCaches is the part of a fake node that serves caches. It records its calls.
type fakeCaches struct {
	refusal error // returned by every OpenCache
	opened  []replica.OpenCache
	open    []Cache // the Cache passed to each OpenCache
	acks    []string
	closed  []fsm.Holding
	opening func() // if not nil, called before a cache is opened
}

func (n *fakeCaches) OpenCache(o replica.OpenCache, to Cache) error {
	if n.opening != nil {
		n.opening()
	}
	n.opened, n.open = append(n.opened, o), append(n.open, to)
	return n.refusal
}

func (n *fakeCaches) AckCache(a replica.AckCache, from Cache) {
	n.acks = append(n.acks, fmt.Sprintf("%d.%d open %d %v %v", a.Term, a.Seq, a.Open, a.Dropped,
		from == n.open[len(n.open)-1]))
}

func (n *fakeCaches) CloseCache(of fsm.Holding, _ Cache) { n.closed = append(n.closed, of) }

func (n *fakeCaches) Holds(lease.ID) []keyrange.Range { return nil }

func cacheRequest(id uint64, has ...string) *pb.Request {
	m := &pb.CacheRequest{Lease: &pb.LeaseRef{Id: 11, Token: 7}}
	for _, k := range has {
		m.Cached = append(m.Cached, &pb.KeyRange{Key: []byte(k)})
	}
	return &pb.Request{Id: id, Body: &pb.Request_Cache{Cache: m}}
}

// shown formats a response to a cache.
func shown(r *pb.Response) string {
	m := r.GetCache()
	return fmt.Sprintf("%d.%d %v drops %d", m.GetTerm(), m.GetSeq(), m.GetReopen(), len(m.GetDrop()))
}

func (b *bench) wantCache(id uint64, want string) {
	b.t.Helper()
	if r := b.only(); r.Id != id || !r.More || shown(r) != want {
		b.t.Errorf("%v, want %q", r, want)
	}
}

func drop(seq uint64, keys ...string) *replica.Invalidation {
	i := &replica.Invalidation{ID: 11, Term: 3, Seq: seq}
	for _, k := range keys {
		i.Drop = append(i.Drop, keyrange.Range{Key: k})
	}
	return i
}

// TestCacheFeed opens a cache, which then receives invalidations and a request to reopen. Its
// acknowledgments are forwarded until it is closed.
func TestCacheFeed(t *testing.T) {
	onStream(t, func(b *bench) {
		n := b.node
		ack := &pb.Request{Id: 2, Body: &pb.Request_CacheAck{CacheAck: &pb.CacheAck{
			Lease: &pb.LeaseRef{Id: 11, Token: 7}, Term: 3, Seq: 4, OpenTerm: 3,
			Dropped: []*pb.KeyRange{{Key: []byte("x")}},
		}}}
		b.send(ack) // from a cache that is not open on this stream
		b.send(cacheRequest(3, "a", "b"))
		if o := n.opened[0]; o.ID != 11 || o.Token != 7 || len(o.Has) != 2 || len(n.acks) != 0 {
			t.Fatalf("opened %+v, acknowledged %v", o, n.acks)
		}
		n.open[0].Opened(3, nil)
		b.wantCache(3, "3.0 false drops 0")
		n.open[0].Invalidated(drop(4, "a"))
		b.wantCache(3, "3.4 false drops 1")
		b.send(ack)
		if want := "3.4 open 3 [{x }] true"; len(n.acks) != 1 || n.acks[0] != want {
			t.Errorf("acknowledged %q, want %q", n.acks, want)
		}
		ack.Id, ack.GetCacheAck().Dropped = 4, make([]*pb.KeyRange, maxHas+1)
		b.send(ack)
		if want := "3.4 open 3 [] true"; len(n.acks) != 2 || n.acks[1] != want {
			t.Errorf("acknowledged %q, want %q", n.acks, want)
		}
		n.open[0].Reopen(5)
		b.wantCache(3, "5.0 true drops 0")
		b.send(&pb.Request{Id: 4, Body: &pb.Request_Cancel{Cancel: 3}}, cacheRequest(5))
		if r := b.only(); r.Id != 3 || r.More {
			t.Errorf("the end: %v", r)
		}
		n.open[1].Opened(0, lease.ErrNotFound)
		b.wantError(5, pb.Reason_REASON_LEASE_NOT_FOUND)
		n.refusal = api.ErrTooManyRequests
		b.send(cacheRequest(6))
		b.wantError(6, pb.Reason_REASON_UNAVAILABLE)
		n.refusal = nil
		b.send(cacheRequest(7))
		b.stop()
		synctest.Wait()
		if got := fmt.Sprint(n.closed); got != "[{11 7} {11 7}]" {
			t.Errorf("closed %s", got)
		}
	})
}

// all returns the responses that have arrived, including those that were waiting to be read.
func (b *bench) all() (out []*pb.Response) {
	for list := b.got(); len(list) > 0; list = b.got() {
		out = append(out, list...)
	}
	return out
}

// TestCacheWithoutReader checks that a client that does not read uses bounded memory and does not
// block anything.
func TestCacheWithoutReader(t *testing.T) {
	onStream(t, func(b *bench) {
		b.send(cacheRequest(1))
		to := b.node.open[0]
		to.Opened(3, nil)
		for seq := range uint64(cap(b.answers) + 10) {
			to.Invalidated(drop(seq+1, fmt.Sprint(seq)))
			synctest.Wait()
		}
		for range 3 {
			to.Invalidated(drop(200, "again"))
		}
		list := b.all()
		if got := shown(list[len(list)-1]); got != "3.200 false drops 10" {
			t.Errorf("at last %s", got)
		}
		for range cap(b.answers) + 1 { // one more is being sent
			to.Invalidated(drop(201, "k"))
			synctest.Wait()
		}
		for i := range 2 * maxDrops {
			to.Invalidated(drop(uint64(300+i), fmt.Sprint(i)))
		}
		to.Invalidated(drop(7, "old"))
		list = b.all()
		last := list[len(list)-1]
		want := fmt.Sprintf("3.%d false drops", 299+2*maxDrops)
		if got := shown(last); len(last.GetCache().GetDrop()) > maxDrops || got[:len(want)] != want {
			t.Errorf("at last %s, want %s", got, want)
		}
	})
}

// TestFills checks that a read with Cache set asks the leader whether the result can be cached, and
// that the response includes the term.
func TestFills(t *testing.T) {
	onStream(t, func(b *bench) {
		b.node.put(&fsm.Put{Key: "k", Value: []byte("v")})
		fill := func(id uint64, r *pb.RangeRequest) {
			r.Key, r.Cache = []byte("k"), &pb.LeaseRef{Id: 11, Token: 7}
			b.send(&pb.Request{Id: id, Body: &pb.Request_ReadRange{ReadRange: r}})
		}
		fill(1, &pb.RangeRequest{RangeEnd: []byte("m")})
		s := b.node.submitted[0]
		want := keyrange.Range{Key: "k", End: "m"}
		if f := s.Fill; f.ID != 11 || f.Token != 7 || f.Ranges[0] != want {
			t.Fatalf("asked %+v", f)
		}
		s.Fill.Term = 3
		s.To.Answered(fsm.Result{}, nil)
		if r := b.only().GetReadRange(); r.GetCacheTerm() != 3 || len(r.GetKvs()) != 1 {
			t.Errorf("answered %v", r)
		}
		id := uint64(1)
		for _, r := range []*pb.RangeRequest{
			{Limit: 1}, {Revision: 1}, {Serializable: true}, {KeysOnly: true}, {CountOnly: true},
		} {
			id++
			fill(id, r)
			b.wantError(id, pb.Reason_REASON_INVALID)
		}
		b.send(&pb.Request{Id: 10, Body: &pb.Request_ReadRange{
			ReadRange: &pb.RangeRequest{Key: []byte("k"), Cache: &pb.LeaseRef{Id: 11}},
		}})
		b.wantError(10, pb.Reason_REASON_INVALID)
		in := &pb.TxnRequest{Success: []*pb.Op{{Op: &pb.Op_ReadRange{
			ReadRange: &pb.RangeRequest{Key: []byte("k"), Cache: &pb.LeaseRef{Id: 11, Token: 7}},
		}}}}
		b.send(&pb.Request{Id: 11, Body: &pb.Request_Txn{Txn: in}})
		b.wantError(11, pb.Reason_REASON_INVALID)
		b.send(&pb.Request{Id: 12, Body: &pb.Request_Cache{Cache: &pb.CacheRequest{}}})
		b.wantError(12, pb.Reason_REASON_INVALID)
	})
	s := unary{&store{leases: service(newNode(), Options{}).leases}}
	_, err := s.Range(context.Background(), &pb.RangeRequest{
		Key: []byte("k"), Cache: &pb.LeaseRef{Id: 1, Token: 1},
	})
	if err == nil {
		t.Error("a unary read may be cached")
	}
}

// TestHolds checks that a lease holds the ranges listed in its grant, including a grant within a
// transaction, and that the response lists them.
func TestHolds(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	holds := []*pb.KeyRange{{Key: []byte("a"), RangeEnd: []byte("b")}, {Key: []byte("c")}}
	id := grant(t, s, &pb.GrantRequest{TtlMs: 1000, Holds: holds}).Lease.Id
	keys := unary{&store{leases: s.leases, node: n}}
	_, err := keys.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.Op{{Op: &pb.Op_Grant{
		Grant: &pb.GrantRequest{Id: 12, TtlMs: 1000, Holds: holds[:1]},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int64]int{id: 2, 12: 1} {
		d, err := s.Describe(t.Context(), &pb.DescribeRequest{Id: id})
		if err != nil || len(d.Lease.Holds) != want || string(d.Lease.Holds[0].RangeEnd) != "b" {
			t.Errorf("%v, %v", d, err)
		}
	}
	l, err := s.List(t.Context(), &pb.ListRequest{})
	if err != nil || len(l.Leases) != 2 || len(l.Leases[0].Holds) == 0 {
		t.Errorf("%v, %v", l, err)
	}
	for _, bad := range [][]*pb.KeyRange{
		make([]*pb.KeyRange, 65),
		{{Key: []byte("b"), RangeEnd: []byte("a")}},
		{{Key: make([]byte, 20<<10)}},
	} {
		if _, err := s.Grant(t.Context(), &pb.GrantRequest{TtlMs: 1000, Holds: bad}); err == nil {
			t.Errorf("%d ranges are held", len(bad))
		}
	}
}

// TestCacheTTL checks that no grant, transaction or TTL change can give a lease with holds a TTL
// above the limit. A lease without holds can have a longer one.
func TestCacheTTL(t *testing.T) {
	n := newNode()
	s := service(n, Options{MaxCacheTTL: 3000})
	keys := unary{&store{leases: s.leases, node: n}}
	holds := []*pb.KeyRange{{Key: []byte("a"), RangeEnd: []byte("b")}}
	refused := func(what string, err error) {
		t.Helper()
		if !strings.Contains(fmt.Sprint(err), "at most 3000 ms") ||
			api.Reason(err) != pb.Reason_REASON_INVALID {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Grant(t.Context(), &pb.GrantRequest{TtlMs: 3001, Holds: holds})
	refused("grant", err)
	_, err = keys.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.Op{{Op: &pb.Op_Grant{
		Grant: &pb.GrantRequest{Id: 12, TtlMs: 9e12, Holds: holds},
	}}}})
	refused("transaction", err)
	l := grant(t, s, &pb.GrantRequest{Holds: holds}).Lease
	if l.TtlMs != 3000 {
		t.Errorf("without a TTL: %v", l)
	}
	held := func(l *pb.Lease) *pb.LeaseRef { return &pb.LeaseRef{Id: l.Id, Token: l.Token} }
	longer := &pb.ChangeTTLRequest{Lease: held(l), TtlMs: 3001}
	_, err = s.ChangeTTL(t.Context(), longer)
	refused("change", err)
	h, err := s.HandOver(t.Context(), &pb.HandOverRequest{Lease: held(l)})
	if err != nil {
		t.Fatal(err)
	}
	longer.Lease = held(h.Lease) // it no longer has any holds
	if _, err = s.ChangeTTL(t.Context(), longer); err != nil {
		t.Error(err)
	}
}

// TestCacheOpenedLate checks that no cache stays open after its stream has ended, even if the
// goroutine that receives the request notices the end late.
func TestCacheOpenedLate(t *testing.T) {
	n := newNode()
	c := newCaches(n, func() {})
	n.opening = c.close
	if err := c.begin(1, cacheRequest(1).GetCache()); err != nil {
		t.Error(err)
	}
	// The stream closed the cache twice: once before the cache was open, and once after.
	if len(n.opened) != 1 || len(n.closed) != 2 {
		t.Errorf("opened %v, closed %v", n.opened, n.closed)
	}
	if err := c.begin(2, cacheRequest(2).GetCache()); err == nil || len(n.opened) != 1 {
		t.Errorf("opened %v, %v", n.opened, err)
	}
}

// TestTooManyWatches checks that new watches are rejected if all watches together use too much
// memory.
func TestTooManyWatches(t *testing.T) {
	n := newStuckNode()
	n.hub = watch.New(func() watch.History[*api.Event] {
		return api.NewHistory(n.View().KV)
	}, watch.Options{Watches: 1})
	w := newWatches(&store{node: n})
	err := w.begin(1, &pb.WatchRequest{Key: []byte("k")})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a watch: %v", err)
	}
}

// TestFeedAfterStreamEnd checks that a receiver that has not yet noticed the end of its stream
// cannot start a feed, not even the stream's first, because nothing would stop it.
func TestFeedAfterStreamEnd(t *testing.T) {
	n := newNode()
	s := &stream{
		store: &store{leases: service(n, Options{}).leases, node: n}, ctx: t.Context(),
		lasting: lasting{waker: newWaker(nil)},
	}
	s.finish()
	f := s.needFeeds()
	if err := f.caches.begin(1, cacheRequest(1).GetCache()); err == nil || len(n.opened) != 0 {
		t.Errorf("a cache: %v, opened %v", err, n.opened)
	}
	if err := f.watches.begin(2, &pb.WatchRequest{Key: []byte("k")}); err == nil {
		t.Error("a watch has begun")
	}
}
