package client

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/leaseholdpb"
)

// fakeCache takes note of what a CacheLink tells it.
type fakeCache struct {
	mu    sync.Mutex
	heard []string
	has   []KeyRange
}

func (f *fakeCache) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, fmt.Sprintf(format, args...))
}

func (f *fakeCache) Opening() []KeyRange       { f.note("opening"); return f.has }
func (f *fakeCache) Opened(term uint64)        { f.note("opened %d", term) }
func (f *fakeCache) Invalidated(n CacheNotice) { f.note("drop %d.%d %v", n.Term, n.Seq, n.Drop) }
func (f *fakeCache) Writing(list []KeyRange)   { f.note("writing %v", list) }

func (f *fakeCache) Refused(err error) {
	f.note("refused %v", errors.Is(err, ErrUnavailable))
}

// told checks what was heard since the last time.
func (f *fakeCache) told(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.heard, want) {
		t.Errorf("heard %q, want %q", f.heard, want)
	}
	f.heard = nil
}

// cacheRequests returns those that were received so far.
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

// TestCacheLink: a cache is opened on each stream with what it has, and again when that is
// asked for; invalidations reach it.
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
		k, err := c.LinkCache(l, cache)
		if err != nil {
			t.Fatal(err)
		}
		cache.told(t, "opening", "opened 3")
		cache.has = []KeyRange{{Key: "a", End: "c"}}
		first := f.cacheRequests()[0]
		f.last().say(cacheResponse(first, &pb.CacheResponse{
			Term: 3, Seq: 1, Drop: []*pb.KeyRange{{Key: []byte("a")}},
		}))
		cache.told(t, "drop 3.1 [{a }]")

		f.set(func() { term = 4 })
		f.last().say(cacheResponse(first, &pb.CacheResponse{Term: 4, Reopen: true}))
		cache.told(t, "opening", "opened 4")
		f.set(func() { term = 5 })
		close(f.last().cut)
		cache.told(t, "opening", "opening", "opened 5")
		all := f.cacheRequests()
		if last := all[len(all)-1].GetCache(); last.Term != 4 || len(last.Has) != 1 ||
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

// TestCacheLinkRefused: a cache that may be taken later is offered again, another is not.
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
		k, err := c.LinkCache(grant(t, c, Grant{}), cache)
		if err != nil {
			t.Fatal(err)
		}
		cache.told(t, "opening", "opening", "refused true")
		f.set(func() { reason = pb.Reason_REASON_LEASE_NOT_FOUND })
		pass(time.Second)
		cache.told(t, "opening", "opening", "refused false")
		pass(time.Minute)
		cache.told(t)
		k.Close()
	})
}

// TestCacheWrites: a cache drops what is about to be written, and what it tells of that
// comes before the write, even if the client waits for many answers.
func TestCacheWrites(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		l, cache := grant(t, c, Grant{}), &fakeCache{}
		k, err := c.LinkCache(l, cache)
		if err != nil {
			t.Fatal(err)
		}
		cache.told(t, "opening")
		ctx := t.Context()
		_, _ = c.Put(ctx, Put{Key: "a"})
		_, _ = c.Delete(ctx, Delete{Key: "b", End: "c"})
		_, _ = c.Txn(ctx, Txn{
			Then: []Op{Put{Key: "d"}, Range{Key: "x"}, Txn{Else: []Op{Delete{Key: "e"}}}},
			Else: []Op{Put{Key: "f"}},
		})
		_, _ = c.Grant(ctx, Grant{TTL: ttl, Keys: []KV{{Key: "g"}}})
		_ = c.Attach(ctx, l.Ref(), "h", "i")
		_ = c.Detach(ctx, l.Ref(), "j")
		_, _ = c.Get(ctx, "a")
		cache.told(t, "writing [{a }]", "writing [{b c}]", "writing [{d } {e } {f }]",
			"writing [{g }]", "writing [{h } {i }]", "writing [{j }]")

		f.set(func() { f.answer = silent })
		for range maxCalls + 10 {
			go func() { _, _ = c.Put(ctx, Put{Key: "a"}) }()
		}
		synctest.Wait()
		k.Ack(CacheAck{Term: 1, Seq: 2, Dropped: []KeyRange{{Key: "a"}}})
		synctest.Wait()
		all := f.requests()
		ack := all[len(all)-1].GetCacheAck()
		if ack.GetSeq() != 2 || ack.GetTerm() != 1 || ack.GetLease().GetId() != int64(l.ID()) {
			t.Errorf("the last request is %v", all[len(all)-1])
		}
		k.Close()
	})
}

// TestValid: without a lock, a lease is valid as long as with one (T2, T10).
func TestValid(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		l := grant(t, c, Grant{Grace: ttl})
		if !l.Valid() {
			t.Error("a new lease is not valid")
		}
		pass(ttl)
		if !l.Valid() {
			t.Error("it is not valid though it is renewed")
		}
		f.set(func() { f.answer = silent })
		until := l.ValidUntil()
		pass(time.Until(until) - 1)
		if !l.Valid() {
			t.Error("it has ended too early")
		}
		pass(1)
		if l.Valid() {
			t.Error("it is valid past its end")
		}
		f.set(func() { f.answer = f.obey })
		pass(ttl / 2)
		if !l.Valid() || l.Err() != nil {
			t.Errorf("it has not come back: %v", l.Err())
		}
		l.Close()
		if l.Valid() {
			t.Error("it is valid after its end")
		}
	})
}

// TestWindow: a wall clock that jumps forward ends a validity, one that jumps back changes
// nothing (T10).
func TestWindow(t *testing.T) {
	base := time.Now()
	w := &window{base: base, wall: base.UnixNano(), left: time.Second}
	jumped := &window{base: base, wall: base.UnixNano() - int64(time.Minute), left: time.Second}
	back := &window{base: base, wall: base.UnixNano() + int64(time.Minute), left: time.Second}
	for _, c := range []struct {
		w    *window
		at   time.Duration
		want bool
	}{
		{w, 0, true},
		{w, time.Second - 1, true},
		{w, time.Second, false},
		{jumped, 0, false},
		{back, time.Second - 1, true},
		{back, time.Second, false},
		{&window{}, 0, false},
	} {
		if got := c.w.within(base.Add(c.at)); got != c.want {
			t.Errorf("%+v after %v: %v", c.w, c.at, got)
		}
	}
}
