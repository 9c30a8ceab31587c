package cache_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// TestFollower checks that changes soon appear in memory, that each revision appears as a whole,
// and that no write waits.
func TestFollower(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 3)
		own, other := connect(t, cl.endpoints()...), connect(t, cl.endpoints()...)
		put(t, other, "f/a", "1")
		put(t, other, "g/a", "1")
		f, err := cache.Follow(timeout(t), own, []store.KeyRange{store.Prefix("f/"), store.Prefix("g/")},
			cache.FollowOptions{MaxAge: time.Minute, MemoryOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got := value(t, f, "f/a") + value(t, f, "f/b") + values(t, f, "g/"); got != "1-a1 " {
			t.Fatalf("read %q", got)
		}
		for i := range 20 {
			v := []byte(fmt.Sprint(i))
			must[client.TxnResult](t)(other.Txn(timeout(t), store.Txn{Then: []store.Op{
				store.Put{Key: "f/b", Value: v},
				store.Put{Key: "f/c", Value: v},
				store.Delete{Key: "f/a"},
				store.Put{Key: "g/b", Value: v},
			}}))
			want := fmt.Sprintf("b%d c%d ", i, i)
			eventually(t, "the change arrives", func() bool {
				got := values(t, f, "f/")
				if half := got != want && i > 0 && got != fmt.Sprintf("b%d c%d ", i-1, i-1); half {
					t.Fatalf("half of a change: %q", got)
				}
				return got == want
			})
			if got := value(t, f, "f/a") + value(t, f, "f/b"); got != "-"+string(v) {
				t.Fatalf("read %q", got)
			}
		}
		if _, err := f.Get(timeout(t), "h/a"); !errors.Is(err, cache.ErrNotHeld) {
			t.Errorf("get: %v, want ErrNotHeld", err)
		}
		f.Close()
		if _, err := f.Get(timeout(t), "f/b"); !errors.Is(err, cache.ErrStale) {
			t.Errorf("get after close: %v, want ErrStale", err)
		}
		if age, ok := f.Age(); ok {
			t.Errorf("the age after close is %v", age)
		}
		bad := []store.KeyRange{{Key: "b", End: "a"}}
		for _, list := range [][]store.KeyRange{nil, bad} {
			_, err := cache.Follow(timeout(t), own, list, cache.FollowOptions{})
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("Follow(%v): %v", list, err)
			}
		}
	})
}

// TestFollowerCutOff checks that a disconnected follower stops answering from memory after MaxAge,
// and resumes once it is connected again.
func TestFollowerCutOff(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		line := cl[0].Line()
		own, other := connect(t, line.Endpoint()), connect(t, cl.endpoints()...)
		put(t, other, "f/a", "1")
		f, err := cache.Follow(timeout(t), own, []store.KeyRange{store.Prefix("f/")},
			cache.FollowOptions{MaxAge: time.Second, MemoryOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var before time.Duration
		eventually(t, "the age decreases even though nothing changes", func() bool {
			age, ok := f.Age()
			younger := ok && age < before
			before = age
			return younger
		})
		line.SetFrozen(true)
		put(t, other, "f/a", "2") // no cache holds the key
		eventually(t, "the follower stops answering", func() bool {
			kv, err := f.Get(t.Context(), "f/a")
			if err == nil && string(kv.Value) != "1" {
				t.Fatalf("read %q", kv.Value)
			}
			return errors.Is(err, cache.ErrStale)
		})
		line.SetFrozen(false)
		line.Break()
		eventually(t, "the change arrives", func() bool {
			kv, err := f.Get(t.Context(), "f/a")
			return err == nil && string(kv.Value) == "2"
		})
	})
}

// TestFollowerCompacted checks a follower that is disconnected until the history that it needs has
// been compacted. It reads its ranges again, so it misses no change, and continues.
func TestFollowerCompacted(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		line := cl[0].Line()
		own, other, etcd := connect(t, line.Endpoint()), connect(t, cl.endpoints()...), cl.etcd(t)
		put(t, other, "f/a", "1")
		put(t, other, "f/b", "1")
		f, err := cache.Follow(timeout(t), own, []store.KeyRange{store.Prefix("f/")},
			cache.FollowOptions{MaxAge: time.Second, MemoryOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		line.SetFrozen(true)
		put(t, other, "f/a", "2")
		gone := must[*clientv3.DeleteResponse](t)(etcd.Delete(timeout(t), "f/b"))
		must[*clientv3.CompactResponse](t)(etcd.Compact(timeout(t), gone.Header.Revision))
		line.SetFrozen(false)
		line.Break()
		knows := func(want string) {
			t.Helper()
			eventually(t, "the follower has "+want, func() bool {
				r, err := f.Range(t.Context(), store.Prefix("f/"))
				return err == nil && len(r.KVs) == 1 && string(r.KVs[0].Value) == want
			})
		}
		knows("2")
		put(t, other, "f/a", "3")
		knows("3")
	})
}
