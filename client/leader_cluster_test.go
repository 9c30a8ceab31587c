package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// leaderOf returns the leader on which all members agree, ignoring members that are not running. It
// returns nil if they do not agree.
func leaderOf(ctx context.Context, t *testing.T, members ...*member) *member {
	t.Helper()
	var id uint64
	var leads *member
	for i, m := range members {
		s, err := m.etcd(t).Status(ctx, m.Member.Endpoint())
		if err != nil || s.Leader == 0 || i > 0 && s.Leader != id {
			return nil
		}
		if id = s.Leader; s.Header.MemberId == id {
			leads = m
		}
	}
	return leads
}

// atLeader waits until a client is connected only to the leader, and returns the leader. It
// considers only the given members.
func atLeader(ctx context.Context, t *testing.T, members ...*member) (leads *member) {
	t.Helper()
	eventually(t, "the client is with the leader", func() bool {
		leads = leaderOf(ctx, t, members...)
		return leads != nil && !slices.ContainsFunc(members, func(m *member) bool {
			return m.Busy() != (m == leads)
		})
	})
	return leads
}

// moveLeader transfers leadership from one member to another, unless it has already moved.
func moveLeader(ctx context.Context, t *testing.T, from, to *member) {
	t.Helper()
	s, err := to.etcd(t).Status(ctx, to.Member.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leadership moves", func() bool {
		_, err := from.etcd(t).MoveLeader(ctx, s.Header.MemberId)
		if errors.Is(err, rpctypes.ErrTimeout) { // the transferee was not up to date
			return false
		}
		if err != nil && !errors.Is(err, rpctypes.ErrNotLeader) {
			t.Fatal(err)
		}
		return true
	})
}

// without returns all members except one.
func without(list []*member, not *member) (out []*member) {
	for _, m := range list {
		if m != not {
			out = append(out, m)
		}
	}
	return out
}

// TestLeader checks that a client follows the leader. While leadership moves and responses are
// lost, requests take effect once, leases remain valid, and a watch neither loses nor repeats
// events.
func TestLeader(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		c := connect(t, steady, members...)
		ctx := ask(t)
		l := must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: steadyTTL}))
		w := must[*client.Watcher](t)(c.Watch(ctx, store.Watch{Key: "k"}))
		f := &follower{t: t, w: w, seen: make(chan int64, 100_000)}
		go f.run(ctx)
		const workers = 8
		stop, counts := make(chan struct{}), make(chan int64, workers)
		for range workers {
			go func() {
				n := int64(0)
				defer func() { counts <- n }()
				for ; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := c.Put(ctx, store.Put{Key: "k"}); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
			}()
		}
		for i := range 6 {
			from := atLeader(ctx, t, members...)
			if i%2 == 1 {
				from.Lose(1)
			}
			moveLeader(ctx, t, from, without(members, from)[i%2])
		}
		atLeader(ctx, t, members...)
		close(stop)
		total := int64(0)
		for range workers {
			total += <-counts
		}
		if kv := must[store.KV](t)(c.Get(ctx, "k")); kv.Version != total {
			t.Errorf("version %d after %d puts", kv.Version, total)
		}
		for v := range f.seen {
			if v == total {
				break
			}
		}
		w.Close()
		if err := l.Err(); err != nil {
			t.Error(err)
		}
		renewed(t, l)
	})
}
