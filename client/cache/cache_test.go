package cache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
)

// TestCoherent checks that every cache sees a write as soon as it is acknowledged, whichever
// client, request or API made it (C1, T20).
func TestCoherent(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 3)
		var caches []*cache.Cache
		for _, e := range cl.endpoints() { // one client per member
			caches = append(caches, open(t, connect(t, e), "c/", cache.Options{}))
		}
		etcd, own := cl.etcd(t), connect(t, cl.endpoints()...)
		leased := must[*clientv3.LeaseGrantResponse](t)(etcd.Grant(timeout(t), 60)).ID
		expires := must[*client.Lease](t)(own.Grant(timeout(t), client.Grant{TTL: 9 * time.Second}))
		for _, s := range []struct {
			what string
			do   func(context.Context) error
			want string // values of the keys a, b, c, d, e
		}{
			{"put", func(ctx context.Context) error {
				_, err := etcd.Put(ctx, "c/a", "1")
				return err
			}, "1----"},
			{"put again", func(ctx context.Context) error {
				_, err := etcd.Put(ctx, "c/a", "2")
				return err
			}, "2----"},
			{"txn that succeeds", func(ctx context.Context) error {
				_, err := etcd.Txn(ctx).Then(clientv3.OpPut("c/b", "3"), clientv3.OpPut("c/c", "4")).Commit()
				return err
			}, "234--"},
			{"txn that does not", func(ctx context.Context) error {
				_, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.Value("c/a"), "=", "x")).
					Else(clientv3.OpDelete("c/b"), clientv3.OpTxn(nil,
						[]clientv3.Op{clientv3.OpPut("c/d", "5")}, nil)).Commit()
				return err
			}, "2-45-"},
			{"delete range", func(ctx context.Context) error {
				_, err := etcd.Delete(ctx, "c/b", clientv3.WithRange("c/d"))
				return err
			}, "2--5-"},
			{"put with a lease", func(ctx context.Context) error {
				_, err := etcd.Put(ctx, "c/e", "6", clientv3.WithLease(leased))
				return err
			}, "2--56"},
			{"revoke", func(ctx context.Context) error {
				_, err := etcd.Revoke(ctx, leased)
				return err
			}, "2--5-"},
			{"attach", func(ctx context.Context) error {
				return own.Attach(ctx, expires.Ref(), "c/a", "c/d")
			}, "2--5-"},
			{"expiry", func(ctx context.Context) error {
				expires.Close()
				for {
					r, err := own.Range(ctx, store.Range{Key: "c/a"})
					if err != nil || r.Count == 0 {
						return err
					}
					time.Sleep(100 * time.Millisecond)
				}
			}, "-----"},
			{"own put", func(ctx context.Context) error {
				_, err := own.Put(ctx, store.Put{Key: "c/c", Value: []byte("7")})
				return err
			}, "--7--"},
			{"own delete of all", func(ctx context.Context) error {
				_, err := own.Delete(ctx, store.Delete{Key: "\x00", End: "\x00"})
				return err
			}, "-----"},
		} {
			if err := s.do(timeout(t)); err != nil {
				t.Fatalf("%s: %v", s.what, err)
			}
			for i, c := range caches {
				got, all := "", ""
				for _, k := range "abcde" {
					got += value(t, c, "c/"+string(k))
				}
				for i, k := range "abcde" {
					if s.want[i] != '-' {
						all += fmt.Sprintf("%c%c ", k, s.want[i])
					}
				}
				if listed := values(t, c, "c/"); got != s.want || listed != all {
					t.Errorf("%s: cache %d has %q, %q; want %q", s.what, i, got, listed, s.want)
				}
			}
		}
		for i, c := range caches {
			s := c.Stats()
			for range 100 {
				value(t, c, "c/a")
				values(t, c, "c/")
			}
			if again := c.Stats(); again.Fills != s.Fills || s.Kept == 0 {
				t.Errorf("cache %d: stats %+v, then %+v", i, s, again)
			}
		}
	})
}

// TestOneWriteOneFill checks that after a write to one key in a cached range, only that key is read
// again.
func TestOneWriteOneFill(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		own, other := connect(t, cl.endpoints()...), connect(t, cl.endpoints()...)
		for i := range 100 {
			put(t, other, fmt.Sprintf("k/%02d", i), "1")
		}
		c := open(t, own, "k/", cache.Options{})
		first := values(t, c, "k/")
		put(t, other, "k/50", "2")
		for range 10 {
			for i := range 100 {
				value(t, c, fmt.Sprintf("k/%02d", i))
			}
			if got := values(t, c, "k/"); len(got) != len(first) || got == first {
				t.Fatalf("the range is %q", got)
			}
		}
		if s := c.Stats(); s.Fills != 2 || s.Kept != 2 || s.Entries != 100 || s.Invalidations != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestCacheNotOlderThanWatch checks that after a client has received an event, its cache returns
// nothing older than that event (T20).
func TestCacheNotOlderThanWatch(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 3)
		own, other := connect(t, cl.endpoints()...), connect(t, cl.endpoints()...)
		c := open(t, own, "w/", cache.Options{})
		w := must[*client.Watcher](t)(own.Watch(timeout(t), store.Watch{Key: "w/a"}))
		defer w.Close()
		const n = 200
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := range n {
				put(t, other, "w/a", fmt.Sprint(i))
			}
		})
		for seen := 0; seen < n; {
			u := must[store.Update](t)(w.Next(timeout(t)))
			seen += len(u.Events)
			kv, ok, err := cache.Found(c.Get(timeout(t), "w/a"))
			if err != nil || !ok || kv.ModRevision < u.Revision {
				t.Fatalf("%+v, %v, %v after an event of revision %d", kv, ok, err, u.Revision)
			}
		}
		writer.Wait()
	})
}

// TestDeadCache checks that an unresponsive cache delays a write until its lease ends and delays
// nothing else. The cache stops answering from memory before the write completes (T2).
func TestDeadCache(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 3)
		line := cl[0].Line()
		dead := open(t, connect(t, line.Endpoint()), "d/", cache.Options{
			TTL: 8 * time.Second, MemoryOnly: true,
		})
		alive := open(t, connect(t, cl.endpoints()...), "d/", cache.Options{})
		other := connect(t, cl.endpoints()...)
		put(t, other, "d/a", "1")
		put(t, other, "d/b", "1")
		keeps(t, dead, "d/a")
		keeps(t, alive, "d/a")
		line.SetFrozen(true)
		written := make(chan time.Time, 1)
		go func() {
			defer close(written) // in case the write fails
			put(t, other, "d/a", "2")
			written <- time.Now()
		}()
		eventually(t, "the live cache was invalidated", func() bool {
			return alive.Stats().Invalidations > 0
		})
		for range 5 { // other writes and reads do not wait
			put(t, other, "d/b", "2")
			put(t, other, "other", "2")
		}
		got, until := value(t, alive, "d/a"), dead.Lease().ValidUntil()
		if !time.Now().Before(until) || got != "1" {
			t.Errorf("read %q at %v, but the write waits until %v", got, time.Now(), until)
		}
		eventually(t, "the cache stops answering", func() bool {
			kv, ok, err := cache.Found(dead.Get(t.Context(), "d/a"))
			if err == nil && (!ok || string(kv.Value) != "1") {
				t.Fatalf("the cache returned %q, %v", kv.Value, ok)
			}
			return errors.Is(err, cache.ErrEnded)
		})
		if at := <-written; at.Before(until) {
			t.Errorf("written %v before the cache ended", until.Sub(at))
		}
		if got := value(t, alive, "d/a"); got != "2" {
			t.Errorf("read %q after the write", got)
		}
		if err := dead.Err(); !errors.Is(err, cache.ErrEnded) || dead.Stats().Entries != 0 {
			t.Errorf("after the end: error %v, stats %+v", err, dead.Stats())
		}
		put(t, other, "d/a", "3") // does not wait anymore
	})
}

// TestLeaderChange checks that a cache keeps its copies when the leader changes, and that the new
// leader invalidates them.
func TestLeaderChange(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 3)
		etcd, other := cl.etcd(t), connect(t, cl.endpoints()...)
		var caches []*cache.Cache
		for _, e := range cl.endpoints() {
			caches = append(caches, open(t, connect(t, e), "l/", cache.Options{}))
		}
		put(t, other, "l/a", "0")
		put(t, other, "l/b", "0")
		for round := range 4 {
			var fills uint64
			for _, c := range caches {
				values(t, c, "l/")
				fills += c.Stats().Fills
			}
			moveLeader(t, etcd)
			for i, c := range caches {
				if got := value(t, c, "l/b"); got != "0" {
					t.Errorf("cache %d: %q", i, got)
				}
			}
			put(t, other, "l/a", fmt.Sprint(round))
			for i, c := range caches {
				if got, want := values(t, c, "l/"), fmt.Sprintf("a%d b0 ", round); got != want {
					t.Errorf("cache %d: %q, want %q", i, got, want)
				}
				fills -= c.Stats().Fills
			}
			if n := -int64(fills); n < int64(len(caches)) {
				t.Errorf("%d reads after a write, want at least %d", n, len(caches))
			}
		}
	})
}

// moveLeader moves leadership to another member, retrying until the members agree on the leader.
func moveLeader(t testing.TB, etcd *clientv3.Client) {
	t.Helper()
	ctx := timeout(t)
	list := must[*clientv3.MemberListResponse](t)(etcd.MemberList(ctx)).Members
	eventually(t, "leadership moved", func() bool {
		var leader uint64
		at := make(map[uint64]string)
		for _, m := range list {
			s := must[*clientv3.StatusResponse](t)(etcd.Status(ctx, m.ClientURLs[0]))
			leader, at[m.ID] = s.Leader, m.ClientURLs[0]
		}
		if leader == 0 {
			return false
		}
		to := inprocess.Etcd(t, at[leader])
		delete(at, leader)
		for id := range at {
			_, err := to.MoveLeader(ctx, id)
			return err == nil
		}
		return false
	})
}

// TestLeaseEnds checks that a cache drops everything and reports the end when its lease ends. It
// then reopens with a new lease unless the program declines (T25).
func TestLeaseEnds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		own, other := connect(t, cl.endpoints()...), connect(t, cl.endpoints()...)
		put(t, other, "e/a", "1")
		asked := make(chan error, 10)
		never := func(error) bool { return false }
		plain := open(t, own, "e/", cache.Options{Reopen: never})
		strict := open(t, own, "e/", cache.Options{MemoryOnly: true, Reopen: never})
		usual := open(t, own, "e/", cache.Options{})
		again := open(t, own, "e/", cache.Options{Reopen: func(why error) bool {
			asked <- why
			return true
		}})
		old := make(map[lease.ID]bool)
		for _, c := range []*cache.Cache{plain, strict, usual, again} {
			value(t, c, "e/a")
			old[c.Lease().ID()] = true
			if err := other.Revoke(timeout(t), c.Lease().Ref()); err != nil {
				t.Fatal(err)
			}
		}
		put(t, other, "e/a", "2") // does not wait for the caches
		for _, c := range []*cache.Cache{plain, strict, usual, again} {
			l := c.Lease()
			if old[l.ID()] {
				<-l.Context().Done()
			}
		}
		eventually(t, "both caches are empty", func() bool {
			return plain.Stats().Entries+strict.Stats().Entries == 0
		})
		if err := plain.Err(); !errors.Is(err, cache.ErrEnded) {
			t.Errorf("Err: %v, want ErrEnded", err)
		}
		if got := value(t, plain, "e/a"); got != "2" || plain.Stats().Entries != 0 {
			t.Errorf("read %q; %+v", got, plain.Stats())
		}
		if _, err := strict.Get(timeout(t), "e/a"); !errors.Is(err, cache.ErrEnded) {
			t.Errorf("get: %v, want ErrEnded", err)
		}
		for _, c := range []*cache.Cache{usual, again} {
			eventually(t, "the cache reopens", func() bool {
				return c.Err() == nil && !old[c.Lease().ID()]
			})
		}
		if why := <-asked; !errors.Is(why, client.ErrLost) {
			t.Errorf("Reopen was called with %v, want ErrLost", why)
		}
		if got := value(t, again, "e/a"); got != "2" || again.Stats().Entries != 1 ||
			old[again.Lease().ID()] {
			t.Errorf("read %q; %+v", got, again.Stats())
		}
	})
}

// TestLimits checks that a cache stays within its limits and reports its evictions to the cluster,
// so that no write waits for a key that the cache no longer has.
func TestLimits(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		own, other := connect(t, cl.endpoints()...), connect(t, cl.endpoints()...)
		c := open(t, own, "b/", cache.Options{MaxEntries: 10})
		for i := range 600 {
			value(t, c, fmt.Sprint("b/", i))
		}
		if s := c.Stats(); s.Entries != 10 || s.Kept != 600 {
			t.Errorf("%+v", s)
		}
		before := c.Stats()
		for i := range 200 { // already evicted; evictions are reported in batches
			put(t, other, fmt.Sprint("b/", i), "1")
		}
		if n := c.Stats().Invalidations - before.Invalidations; n != 0 {
			t.Errorf("%d writes waited for evicted keys", n)
		}
		p := store.Prefix("b/")
		r := must[store.RangeResult](t)(c.Range(timeout(t), p))
		if s := c.Stats(); len(r.KVs) != 200 || s.Entries > 10 {
			t.Errorf("read %d keys; %+v", len(r.KVs), s)
		}
	})
}

// TestSharedFlight checks that one or two reads from the cluster serve all concurrent reads of a
// key.
func TestSharedFlight(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		c := open(t, connect(t, cl.endpoints()...), "f/", cache.Options{})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { value(t, c, "f/a") })
		}
		all.Wait()
		if s := c.Stats(); s.Fills > 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestNotHeld checks that keys outside a cache's ranges are read from the cluster unless MemoryOnly
// is set.
func TestNotHeld(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		own := connect(t, cl.endpoints()...)
		put(t, own, "n/a", "1")
		c := open(t, own, "m/", cache.Options{})
		if got := value(t, c, "n/a") + values(t, c, "n/"); got != "1a1 " || c.Stats().Kept != 0 {
			t.Errorf("read %q; %+v", got, c.Stats())
		}
		strict := open(t, own, "m/", cache.Options{MemoryOnly: true})
		if _, err := strict.Get(timeout(t), "n/a"); !errors.Is(err, cache.ErrNotHeld) {
			t.Errorf("get: %v, want ErrNotHeld", err)
		}
		if got := value(t, strict, "m/a"); got != "-" {
			t.Errorf("read %q", got)
		}
		if err := strict.Close(timeout(t)); err != nil {
			t.Error(err)
		}
		if _, err := strict.Get(timeout(t), "m/a"); !errors.Is(err, cache.ErrEnded) {
			t.Errorf("get after close: %v, want ErrEnded", err)
		}
		bad := []store.KeyRange{{Key: "b", End: "a"}}
		if _, err := cache.Open(timeout(t), own, bad, cache.Options{}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("Open with a reversed range: %v", err)
		}
		if _, err := cache.Open(timeout(t), own, nil, cache.Options{}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("Open without ranges: %v", err)
		}
	})
}
