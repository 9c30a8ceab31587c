package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/members"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// A witness is a program that has been running since before a restore. It has one object of each
// type that resumes from previously received state.
type witness struct {
	t        *testing.T
	c        *client.Client
	watch    *client.Watcher
	etcd     clientv3.WatchChan
	leases   *client.LeaseWatcher
	follower *cache.Follower
	cache    *cache.Cache
	members  *members.Watch
	queue    *queue.Queue
	claimed  chan *queue.Item
}

func newWitness(ctx context.Context, m *member) *witness {
	m.t.Helper()
	c, err := client.New(client.Config{Endpoints: []string{m.url}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = c.Close() })
	w := &witness{t: m.t, c: c, claimed: make(chan *queue.Item, 1)}
	all := []store.KeyRange{store.Prefix("k/")}
	w.etcd = m.client().Watch(ctx, "k/", clientv3.WithPrefix())
	w.watch = got[*client.Watcher](m.t)(c.Watch(ctx,
		store.Prefix("k/").Watch()))
	m.t.Cleanup(w.watch.Close)
	w.leases = got[*client.LeaseWatcher](m.t)(c.LeaseEvents(ctx, leases.Watch{}))
	m.t.Cleanup(w.leases.Close)
	w.follower = got[*cache.Follower](m.t)(cache.Follow(ctx, c, all,
		cache.FollowOptions{MemoryOnly: true}))
	m.t.Cleanup(w.follower.Close)
	w.cache = got[*cache.Cache](m.t)(cache.Open(ctx, c, all, cache.Options{
		TTL: 2 * time.Second,
	}))
	m.t.Cleanup(func() { _ = w.cache.Close(context.Background()) })
	w.members = got[*members.Watch](m.t)(members.New(c, "group").Watch(ctx))
	w.queue = queue.New(c, "queue", queue.Config{})
	go func() {
		i, err := w.queue.Claim(ctx)
		if err != nil && ctx.Err() == nil {
			m.t.Errorf("claim: %v", err)
		}
		w.claimed <- i
	}()
	return w
}

// got returns a result, and fails the test if there is an error.
func got[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// sees waits until the in-memory copies have a value for a key, or "" for none.
func (w *witness) sees(ctx context.Context, key, value string) {
	w.t.Helper()
	for name, r := range map[string]cache.Reader{"follower": w.follower, "cache": w.cache} {
		harness.Eventually(w.t, fmt.Sprintf("the %s has %s = %q", name, key, value), func() error {
			kv, err := r.Get(ctx, key)
			if value == "" && errors.Is(err, client.ErrKeyNotFound) {
				return nil
			}
			if err == nil && string(kv.Value) != value {
				err = fmt.Errorf("it has %q", kv.Value)
			}
			return err
		})
	}
}

// beginsAgain reads the events of the watches until the watches end. They end because their next
// events no longer exist.
func (w *witness) beginsAgain(ctx context.Context) {
	w.t.Helper()
	for {
		if _, err := w.watch.Next(ctx); err != nil {
			if !errors.Is(err, client.ErrCompacted) {
				w.t.Errorf("the watch ends with %v", err)
			}
			break
		}
	}
	for {
		if _, err := w.leases.Next(ctx); err != nil {
			if !errors.Is(err, client.ErrCompacted) {
				w.t.Errorf("the events of leases end with %v", err)
			}
			return
		}
	}
}

// TestClientsDetectRestore (T34) checks programs that observed revisions missing from a restored
// backup. They detect this, read the state again and continue. None of them waits for a lost
// revision.
func TestClientsDetectRestore(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		etcd bool // watches opened through etcd's API are also notified
	}{
		{"by default", nil, true},
		{"by a number", []string{"--bump-revision=1000000", "--mark-compacted"}, true},
		// The member does not have the later revisions and rejects requests for them.
		{"with its revisions kept", []string{"--bump-revision=0"}, false},
	} {
		t.Run(c.name, func(t *testing.T) { witnessRestore(t, c.args, c.etcd) })
	}
}

func witnessRestore(t *testing.T, args []string, etcd bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	m := startMember(t)
	kv := m.client()
	put := func(key, value string) {
		t.Helper()
		got[*clientv3.PutResponse](t)(kv.Put(ctx, key, value))
	}
	put("k/kept", "old")
	put("k/changed", "old")
	file := filepath.Join(t.TempDir(), "backup")
	if out, err := m.command("snapshot", "save", file); err != nil {
		t.Fatalf("save: %v\n%s", err, out)
	}
	w := newWitness(ctx, m)
	put("k/lost", "new")
	put("k/changed", "new")
	for i := range 100 {
		put("k/many", fmt.Sprint(i))
	}
	w.sees(ctx, "k/lost", "new")
	w.sees(ctx, "k/changed", "new")
	for seen := 0; seen < 102; {
		seen += len(receive(t, "events", w.etcd).Events)
	}

	m.kill()
	m.data = filepath.Join(t.TempDir(), "restored")
	args = append([]string{"snapshot", "restore", file, "--data-dir", m.data}, args...)
	out, err := m.command(args...)
	if err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	m.args = append(m.args, "--data-dir", m.data)
	m.start()
	w.beginsAgain(ctx)
	w.sees(ctx, "k/lost", "")
	w.sees(ctx, "k/changed", "old")
	w.sees(ctx, "k/kept", "old")
	put("k/changed", "newest")
	w.sees(ctx, "k/changed", "newest")
	if etcd {
		if r := receive(t, "the end of etcd's watch", w.etcd); r.CompactRevision == 0 {
			t.Errorf("etcd's watch is told %+v", r)
		}
	}
	got[string](t)(w.queue.Push(ctx, []byte("item"), 0))
	if i := receive(t, "an item", w.claimed); i == nil || string(i.Payload()) != "item" {
		t.Errorf("claimed %v", i)
	}
	session := got[*client.Session](t)(w.c.Open(ctx, client.Grant{TTL: time.Minute}))
	got[*members.Membership](t)(members.New(w.c, "group").Register(ctx, session, "m", nil))
	events, err := w.members.Next(ctx)
	if err != nil || len(events) != 1 {
		t.Errorf("the watch of the group tells %v, %v", events, err)
	}
}

// TestRestoreElsewhere follows the steps in docs/operations.md after the loss of a cluster: the
// newest backup is restored as a member with another address, and two other members join it.
func TestRestoreElsewhere(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	lost := startMember(t)
	got[*clientv3.PutResponse](t)(lost.client().Put(t.Context(), "k", "v"))
	file := filepath.Join(t.TempDir(), "backup")
	if out, err := lost.command("snapshot", "save", file); err != nil {
		t.Fatalf("save: %v\n%s", err, out)
	}
	lost.kill()

	a := newMember(t)
	a.peered("a")
	out, err := a.command("snapshot", "restore", file, "--data-dir", a.data, "--name", "a",
		"--initial-advertise-peer-urls", a.peer)
	if err != nil || !strings.Contains(out, "--initial-advertise-peer-urls "+a.peer) {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	a.start()
	joinTwo(t, a)
	if text := a.Tail(); strings.Contains(text, "stored peer URLs") {
		t.Errorf("the member complains of its addresses:\n%s", text)
	}
}

// TestRestoreWithoutAddresses checks that a member restored without its new address reports that
// the stored address is in effect. A member that tries to join it waits, reports the reason, and
// leaves no learner behind. It joins once the address is changed as advised.
func TestRestoreWithoutAddresses(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	lost := startMember(t)
	got[*clientv3.PutResponse](t)(lost.client().Put(t.Context(), "k", "v"))
	file := filepath.Join(t.TempDir(), "backup")
	if out, err := lost.command("snapshot", "save", file); err != nil {
		t.Fatalf("save: %v\n%s", err, out)
	}
	lost.kill()

	a, nobody := newMember(t), "http://"+process.MustFreeAddr()
	a.peered("a")
	out, err := a.command("snapshot", "restore", file, "--data-dir", a.data,
		"--initial-advertise-peer-urls", nobody)
	if err != nil || !strings.Contains(out, "Members on other machines cannot reach it") {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	a.start()
	if text := a.Tail(); !strings.Contains(text, "use only the stored ones") ||
		!strings.Contains(text, nobody) || !strings.Contains(text, a.peer) {
		t.Errorf("the member does not log how its addresses differ:\n%s", text)
	}
	b := newMember(t)
	b.peered("b", "--join", strings.TrimPrefix(a.url, "http://"))
	b.launch()
	harness.Eventually(t, "it says why it waits", func() error {
		if text := b.Tail(); !strings.Contains(text, nobody) {
			return errors.New(text)
		}
		return nil
	})
	list := got[*clientv3.MemberListResponse](t)(a.client().MemberList(t.Context()))
	if len(list.Members) != 1 {
		t.Errorf("members %v", list.Members)
	}
	out, err = a.command("member", "update", fmt.Sprintf("%x", list.Members[0].ID),
		"--peer-urls="+a.peer)
	if err != nil {
		t.Fatalf("update: %v\n%s", err, out)
	}
	awaitVoters(t, a, 2)
}

// peered sets a member's name, peer address and flags. The additional flags replace those of a
// founder.
func (m *member) peered(name string, more ...string) {
	m.peer = "http://" + process.MustFreeAddr()
	m.args = []string{
		"serve", "--name", name, "--data-dir", m.data,
		"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
	}
	m.args = append(m.args, more...)
}

// joinTwo has two members join another member, and waits until all three are voters and have the
// data.
func joinTwo(t *testing.T, a *member) {
	t.Helper()
	for _, name := range []string{"b", "c"} {
		m := newMember(t)
		m.peered(name, "--join", strings.TrimPrefix(a.url, "http://"))
		m.start()
		if kv := get(t, m.client(), "k"); string(kv.Value) != "v" {
			t.Errorf("member %s has %v", name, kv)
		}
	}
	awaitVoters(t, a, 3)
}

func awaitVoters(t *testing.T, a *member, n int) {
	t.Helper()
	c := a.client()
	harness.Eventually(t, "all have votes", func() error {
		list, err := c.MemberList(t.Context())
		if err != nil {
			return err
		}
		voters := slices.DeleteFunc(list.Members, func(m *etcdserverpb.Member) bool {
			return m.IsLearner
		})
		if len(voters) != n {
			return fmt.Errorf("members %v", list.Members)
		}
		return nil
	})
}
