package client

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
)

// fakeCache records the calls that a cacheLink makes.
type fakeCache struct {
	mu      sync.Mutex
	reports []string
	has     []keyrange.Range
}

func (f *fakeCache) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, fmt.Sprintf(format, args...))
}

func (f *fakeCache) Opening() []keyrange.Range     { f.note("opening"); return f.has }
func (f *fakeCache) Opened(term uint64)            { f.note("opened %d", term) }
func (f *fakeCache) Writing(list []keyrange.Range) { f.note("writing %v", list) }

func (f *fakeCache) Invalidated(n cachelink.Notice) {
	f.note("drop %d.%d %v", n.Term, n.Seq, n.Drop)
}

func (f *fakeCache) Refused(err error) {
	f.note("refused %v", errors.Is(err, ErrUnavailable))
}

// wantReports checks the reports recorded since its last call.
func (f *fakeCache) wantReports(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.reports, want) {
		t.Errorf("reports: %q, want %q", f.reports, want)
	}
	f.reports = nil
}

// cacheRequests returns the cache requests received so far.
func (f *fake) cacheRequests() (out []*pb.Request) {
	for _, r := range f.requests() {
		if r.GetCache() != nil {
			out = append(out, r)
		}
	}
	return out
}

func cacheResponse(r *pb.Request, m *pb.CacheResponse) *pb.Response {
	return &pb.Response{Id: r.Id, More: true, Body: &pb.Response_Cache{Cache: m}}
}

// TestCacheLink checks that a cache reports its contents on each new stream and on request, and
// that it receives invalidations.
func TestCacheLink(t *testing.T) {
	inBubble(t, 2, exact, func(t *testing.T, c *Client, f *fake) {
		term := uint64(3)
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if r.GetCache() != nil {
					return []*pb.Response{cacheResponse(r, &pb.CacheResponse{Term: term})}
				}
				return f.obey(s, r)
			}
		})
		l, cache := grant(t, c, Grant{}), &fakeCache{}
		k, err := c.linkCache(l, cache)
		if err != nil {
			t.Fatal(err)
		}
		cache.wantReports(t, "opening", "opened 3")
		cache.has = []keyrange.Range{{Key: "a", End: "c"}}
		first := f.cacheRequests()[0]
		f.last().say(cacheResponse(first, &pb.CacheResponse{
			Term: 3, Seq: 1, Drop: []*pb.KeyRange{{Key: []byte("a")}},
		}))
		cache.wantReports(t, "drop 3.1 [{a }]")

		f.set(func() { term = 4 })
		f.last().say(cacheResponse(first, &pb.CacheResponse{Term: 4, Reopen: true}))
		cache.wantReports(t, "opening", "opened 4")
		f.set(func() { term = 5 })
		close(f.last().cut)
		cache.wantReports(t, "opening", "opening", "opened 5")
		all := f.cacheRequests()
		if last := all[len(all)-1].GetCache(); last.Term != 4 || len(last.Cached) != 1 ||
			last.Lease.Id != int64(l.ID()) {
			t.Errorf("opened with %v", last)
		}
		k.Close()
		synctest.Wait()
		if last := f.requests(); last[len(last)-1].GetCancel() != all[len(all)-1].Id {
			t.Errorf("ended by %v", last[len(last)-1])
		}
	})
}

// TestCacheLinkRefused checks that a rejected cache is registered again if the reason is temporary,
// and not otherwise.
func TestCacheLinkRefused(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		reason := pb.Reason_REASON_UNAVAILABLE
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if r.GetCache() != nil {
					return refuse(r, reason)
				}
				return f.obey(s, r)
			}
		})
		cache := &fakeCache{}
		k, err := c.linkCache(grant(t, c, Grant{}), cache)
		if err != nil {
			t.Fatal(err)
		}
		cache.wantReports(t, "opening", "opening", "refused true")
		f.set(func() { reason = pb.Reason_REASON_LEASE_NOT_FOUND })
		pass(time.Second)
		cache.wantReports(t, "opening", "opening", "refused false")
		pass(time.Minute)
		cache.wantReports(t)
		k.Close()
	})
}

// TestCacheWrites checks that a cache drops the keys that its client is about to write, and reports
// this before the write. This holds even while the client is waiting for many responses.
func TestCacheWrites(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		l, cache := grant(t, c, Grant{}), &fakeCache{}
		k, err := c.linkCache(l, cache)
		if err != nil {
			t.Fatal(err)
		}
		cache.wantReports(t, "opening")
		ctx := t.Context()
		_, _ = c.Put(ctx, store.Put{Key: "a"})
		_, _ = c.Delete(ctx, store.Delete{Key: "b", End: "c"})
		_, _ = c.Txn(ctx, store.Txn{
			Then: []store.Op{
				store.Put{Key: "d"},
				store.Range{Key: "x"},
				store.Txn{Else: []store.Op{store.Delete{Key: "e"}}},
			},
			Else: []store.Op{store.Put{Key: "f"}},
		})
		_, _ = c.Grant(ctx, Grant{TTL: ttl, Keys: []store.KV{{Key: "g"}}})
		_ = c.Attach(ctx, l.Ref(), "h", "i")
		_ = c.Detach(ctx, l.Ref(), "j")
		_, _ = c.Get(ctx, "a")
		cache.wantReports(t, "writing [{a }]", "writing [{b c}]", "writing [{d } {e } {f }]",
			"writing [{g }]", "writing [{h } {i }]", "writing [{j }]")

		f.set(func() { f.answer = silent })
		for range maxCalls + 10 {
			go func() { _, _ = c.Put(ctx, store.Put{Key: "a"}) }()
		}
		synctest.Wait()
		k.Ack(cachelink.Ack{Term: 1, Seq: 2, Dropped: []keyrange.Range{{Key: "a"}}})
		synctest.Wait()
		all := f.requests()
		ack := all[len(all)-1].GetCacheAck()
		if ack.GetSeq() != 2 || ack.GetTerm() != 1 || ack.GetLease().GetId() != int64(l.ID()) {
			t.Errorf("the last request is %v", all[len(all)-1])
		}
		k.Close()
	})
}

// TestAckBytes checks that acknowledgments are split into messages that members accept. All pieces
// are sent before later requests other than renewals, and each piece carries the same terms and
// sequence number as the whole acknowledgment.
func TestAckBytes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		n, bytes int
	}{{"many", 100_000, 100}, {"long", 40, 1 << 20}} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLink(0, nil, &fakeStream{ctx: t.Context()}, func() {})
			k := &cacheLink{client: &Client{most: 3 << 19}, lease: leases.Ref{ID: 1, Token: 2}}
			k.link.Store(l)
			fill := &call{kind: read, request: &pb.Request{Body: &pb.Request_ReadRange{
				ReadRange: &pb.RangeRequest{Key: []byte("k")},
			}}}
			renew := &call{kind: renewal, request: &pb.Request{Body: &pb.Request_Renew{
				Renew: &pb.RenewRequest{Ids: []int64{1}},
			}}}
			ack := cachelink.Ack{Term: 3, Seq: 4, Open: 5}
			for i := range tt.n {
				ack.Dropped = append(ack.Dropped, keyrange.Range{Key: fmt.Sprintf("%0*d", tt.bytes, i)})
			}
			unsent := slices.Clone(ack.Dropped)
			k.Ack(ack)
			for _, q := range []*call{fill, renew} {
				if err := l.submit(q); err != nil {
					t.Fatal(err)
				}
			}
			messages, renewed := 0, 0
			for m := l.take(); m != nil; m = l.take() {
				messages++
				if n := proto.Size(m); n > 2<<20 {
					t.Fatalf("a message has %d bytes", n)
				}
				for _, r := range m.Requests {
					a := r.GetCacheAck()
					switch {
					case r.GetRenew() != nil:
						renewed = messages
						continue
					case a == nil && len(unsent) > 0:
						t.Fatalf("%v goes before %d ranges", r, len(unsent))
					case a == nil:
						continue
					case a.Term != 3 || a.Seq != 4 || a.OpenTerm != 5 || a.Lease.GetToken() != 2:
						t.Fatalf("acknowledged %d.%d, open in %d", a.Term, a.Seq, a.OpenTerm)
					case len(a.Dropped) > 10_000:
						t.Fatalf("%d ranges in a piece", len(a.Dropped))
					}
					got := heldOf(a.Dropped)
					if !slices.Equal(got, unsent[:len(got)]) {
						t.Fatalf("sent other ranges")
					}
					unsent = unsent[len(got):]
				}
			}
			if len(unsent) > 0 || fill.id == 0 {
				t.Errorf("%d ranges were not sent", len(unsent))
			}
			if renewed != 1 && tt.name == "many" {
				t.Errorf("the renewal goes with message %d of %d", renewed, messages)
			}
		})
	}
}

// TestAckTooLong checks that a range that does not fit into a message is omitted and the rest is
// reported.
func TestAckTooLong(t *testing.T) {
	l := newLink(0, nil, &fakeStream{ctx: t.Context()}, func() {})
	k := &cacheLink{client: &Client{most: 1000}}
	k.link.Store(l)
	long := keyrange.Range{Key: string(make([]byte, 600)), End: string(make([]byte, 600))}
	k.Ack(cachelink.Ack{Term: 1, Seq: 2, Dropped: []keyrange.Range{long, {Key: "a"}, long}})
	k.Ack(cachelink.Ack{Term: 1, Seq: 3, Dropped: []keyrange.Range{long}})
	m := l.take()
	if len(m.Requests) != 2 || len(m.Requests[0].GetCacheAck().Dropped) != 1 ||
		m.Requests[1].GetCacheAck().Seq != 3 {
		t.Errorf("sent %d requests of %d bytes", len(m.Requests), proto.Size(m))
	}
}

// TestHasTooLong checks that a cache is rejected if its ranges do not fit into one message, and
// that other requests on the stream continue.
func TestHasTooLong(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		cache := &fakeCache{has: []keyrange.Range{{Key: string(make([]byte, 4<<20))}}}
		k, err := c.linkCache(grant(t, c, Grant{}), cache)
		if err != nil {
			t.Fatal(err)
		}
		cache.wantReports(t, "opening", "refused false")
		if n := len(f.cacheRequests()); n > 0 {
			t.Errorf("%d requests", n)
		}
		k.Close()
	})
}
