package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
)

func register(t *testing.T, g *coord.Group, r coord.Registration) *coord.Membership {
	t.Helper()
	return ok[*coord.Membership](t)(g.Register(soon(t), r))
}

// tell is an event as a test compares it.
func tell(list []coord.MemberEvent) string {
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s %v %s", e.Member.ID, e.Change, e.Member.Metadata))
	}
	return strings.Join(out, "; ")
}

// Goal: a group says who is there, and a watch says who comes, changes and goes, in order and
// with the reason. Method: one member of each fate.
func TestGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	ctx := soon(t)
	g := coord.NewGroup(c, "g")
	// The keys of another group whose name begins with this one's.
	register(t, coord.NewGroup(c, "g/sub"), coord.Registration{ID: "x"})
	a := register(t, g, coord.Registration{ID: "a", Metadata: []byte("1"), TTL: time.Minute})
	w := ok[*coord.GroupWatch](t)(g.Watch(ctx))
	defer w.Close()
	expect := func(want string) {
		t.Helper()
		if got := tell(ok[[]coord.MemberEvent](t)(w.Next(ctx))); got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	}
	expect("a joined 1")
	if err := a.Update(ctx, []byte("2")); err != nil {
		t.Fatal(err)
	}
	expect("a updated 2")
	_, err := g.Register(ctx, coord.Registration{ID: "a"})
	if !errors.Is(err, coord.ErrMemberExists) || !blames(err, a.Lease().ID()) ||
		!strings.Contains(err.Error(), `owner "a"`) {
		t.Errorf("a second a: %v", err)
	}
	if err := a.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	expect("a left 2")
	if err := a.Update(ctx, nil); !errors.Is(err, coord.ErrNotMember) || a.Err() == nil {
		t.Errorf("update after leave: %v, %v", err, a.Err())
	}
	dead := register(t, g, coord.Registration{ID: "b", TTL: time.Second})
	expect("b joined ")
	dead.Lease().Close()
	// The next life of b waits until the cluster has given up the first.
	b := register(t, g, coord.Registration{ID: "b", TTL: time.Minute, Wait: true})
	expect("b failed ")
	expect("b joined ")
	if err := c.Revoke(ctx, b.Lease().Ref()); err != nil {
		t.Fatal(err)
	}
	expect("b revoked ")
	if list, _, err := g.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("listed %v, %v", list, err)
	}
	for _, id := range []string{"", "a/b"} {
		if _, err := g.Register(ctx, coord.Registration{ID: id}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("ID %q: %v", id, err)
		}
	}
}

// Goal: members that share one lease leave one by one, and fail together.
func TestGroupSharedLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	ctx := soon(t)
	g := coord.NewGroup(c, "g")
	l := ok[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
	a := register(t, g, coord.Registration{ID: "a", Lease: l})
	register(t, g, coord.Registration{ID: "b", Lease: l})
	if _, err := g.Register(ctx, coord.Registration{ID: "b", Lease: l}); !errors.Is(
		err, coord.ErrMemberExists) {
		t.Errorf("twice on one lease: %v", err)
	}
	if err := a.Leave(ctx); err != nil || l.Err() != nil {
		t.Fatal(err, l.Err())
	}
	list, _, err := g.List(ctx)
	if err != nil || len(list) != 1 || list[0].ID != "b" || list[0].Lease != l.ID() {
		t.Errorf("listed %v, %v", list, err)
	}
	// T16: who waits for another's place with a lease that ends is told at once.
	mine := ok[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
	waiting := make(chan error, 1)
	go func() {
		_, err := g.Register(ctx, coord.Registration{ID: "b", Lease: mine, Wait: true})
		waiting <- err
	}()
	if err := mine.Revoke(ctx); err != nil {
		t.Fatal(err)
	}
	err = <-waiting
	if !errors.Is(err, client.ErrRevoked) && !errors.Is(err, client.ErrLeaseNotFound) {
		t.Errorf("the waiter was told %v", err)
	}
}

// Goal: a watch that was away while revisions were compacted tells what is different, no join
// and no leave twice, and nobody who stayed (W1). Method: the watcher's connections are cut,
// members come, go, and come back, all of it is compacted, and the connections are restored.
func TestGroupWatchCompacted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	away := r.dial(client.Config{Silence: time.Second})
	ctx := soon(t)
	g := coord.NewGroup(c, "g")
	held := make(map[string]*coord.Membership)
	add := func(id, metadata string) {
		held[id] = register(t, g, coord.Registration{
			ID: id, Metadata: []byte(metadata), TTL: time.Minute,
		})
	}
	for _, id := range []string{"stays", "goes", "changes", "returns"} {
		add(id, "1")
	}
	w := ok[*coord.GroupWatch](t)(coord.NewGroup(away, "g").Watch(ctx))
	defer w.Close()
	want := "changes joined 1; goes joined 1; returns joined 1; stays joined 1"
	if got := tell(ok[[]coord.MemberEvent](t)(w.Next(ctx))); got != want {
		t.Fatalf("told %q", got)
	}
	r.cut(away)
	for _, id := range []string{"goes", "returns"} {
		if err := held[id].Leave(ctx); err != nil {
			t.Fatal(err)
		}
	}
	add("returns", "2")
	add("new", "1")
	if err := held["changes"].Update(ctx, []byte("2")); err != nil {
		t.Fatal(err)
	}
	r.compact()
	r.mend(away)
	want = "goes gone 1; returns gone 1; changes updated 2; new joined 1; returns joined 2"
	if got := tell(ok[[]coord.MemberEvent](t)(w.Next(ctx))); got != want {
		t.Fatalf("told  %q\nwant  %q", got, want)
	}
	// And it goes on from there.
	if err := held["stays"].Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if got := tell(ok[[]coord.MemberEvent](t)(w.Next(ctx))); got != "stays left 1" {
		t.Fatalf("told %q", got)
	}
}

// compact forgets all revisions but the last.
func (r *rig) compact() {
	r.t.Helper()
	c := r.members.etcd(r.t)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	now, err := c.Get(ctx, "x")
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := c.Compact(ctx, now.Header.Revision); err != nil {
		r.t.Fatal(err)
	}
}

// Goal: registrations and updates whose answers are lost are done once, and one that was left
// is not registered again by a try that comes late. Method: answers are lost again and again.
func TestGroupLostAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	watcher := r.dial(client.Config{})
	ctx := soon(t)
	w := ok[*coord.GroupWatch](t)(coord.NewGroup(watcher, "g").Watch(ctx))
	defer w.Close()
	g := coord.NewGroup(c, "g")
	shared := ok[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
	var want, got []string
	for n := range 12 {
		id := fmt.Sprint(n)
		cfg := coord.Registration{ID: id, TTL: time.Minute}
		if n%2 == 0 {
			cfg.Lease = shared
		}
		r.lose(c)
		m := register(t, g, cfg)
		r.lose(c)
		if err := m.Update(ctx, []byte("new")); err != nil {
			t.Fatal(err)
		}
		r.lose(c)
		if err := m.Leave(ctx); err != nil {
			t.Fatal(err)
		}
		want = append(want, id+" joined ", id+" updated new", id+" left new")
	}
	for len(got) < len(want) {
		list := ok[[]coord.MemberEvent](t)(w.Next(ctx))
		for i := range list {
			got = append(got, tell(list[i:i+1]))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("told %q\nwant %q", got, want)
	}
}

// roll is what a watcher was told, and a checker of it.
type roll struct {
	t      *testing.T
	name   string
	joined map[string]int64 // the revision at which each joined that is there
	went   map[coord.MemberChange]int
}

// take checks that nobody joins who is there, and nobody goes or changes who is not, and that
// revisions rise.
func (r *roll) take(e coord.MemberEvent) {
	_, there := r.joined[e.Member.ID]
	switch e.Change {
	case coord.MemberJoined:
		if there {
			r.t.Errorf("%s: %s joined twice", r.name, e.Member.ID)
		}
		r.joined[e.Member.ID] = e.Member.Joined
	case coord.MemberUpdated:
		if r.joined[e.Member.ID] != e.Member.Joined {
			r.t.Errorf("%s: %s changed and was not there", r.name, e.Member.ID)
		}
	default:
		if r.joined[e.Member.ID] != e.Member.Joined {
			r.t.Errorf("%s: %s is %v and was not there", r.name, e.Member.ID, e.Change)
		}
		delete(r.joined, e.Member.ID)
		r.went[e.Change]++
	}
}

// Goal: with three members of the cluster, whatever happens to members of a group and to
// connections, each watch tells a history that makes sense and ends with what is there (W1); one
// that was never away for long tells each end with its reason. Method: members register, change,
// leave, die and are revoked at random, while answers are lost, one watcher is cut off again and
// again, and revisions are compacted.
func TestGroupRandom(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const members, rounds = 5, 6
	near, far := r.dial(client.Config{}), r.dial(client.Config{Silence: time.Second})
	rolls := make(map[string]*roll)
	var watchers sync.WaitGroup
	for name, c := range map[string]*client.Client{"near": near, "far": far} {
		w := ok[*coord.GroupWatch](t)(coord.NewGroup(c, "g").Watch(ctx))
		book := &roll{
			t: t, name: name, joined: make(map[string]int64),
			went: make(map[coord.MemberChange]int),
		}
		rolls[name] = book
		watchers.Go(func() {
			defer w.Close()
			for {
				list, err := w.Next(ctx)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				for _, e := range list {
					if e.Member.ID == "end" {
						return
					}
					book.take(e)
				}
			}
		})
	}
	var left, failed, revoked atomic.Int64
	var all sync.WaitGroup
	for n := range members {
		c := r.dial(client.Config{Silence: time.Second})
		g := coord.NewGroup(c, "g")
		all.Go(func() {
			for range rounds {
				if rand.IntN(3) == 0 {
					r.lose(c)
				}
				m, err := g.Register(ctx, coord.Registration{
					ID: fmt.Sprint(n), TTL: 2 * time.Second, Wait: true,
				})
				if errors.Is(err, client.ErrExpired) || errors.Is(err, client.ErrLeaseNotFound) {
					continue // the machine stood still for so long
				}
				if err != nil {
					t.Error(err)
					return
				}
				err = m.Update(ctx, []byte("x"))
				if err != nil && m.Err() == nil && !errors.Is(err, coord.ErrNotMember) {
					t.Error(err)
				}
				switch rand.IntN(4) {
				case 0:
					m.Lease().Close()
					failed.Add(1)
				case 1:
					err := c.Revoke(ctx, m.Lease().Ref())
					if err != nil && !errors.Is(err, client.ErrLeaseNotFound) {
						t.Error(err)
					}
					revoked.Add(1)
				default:
					if err := m.Leave(ctx); err != nil {
						t.Error(err)
					}
					left.Add(1)
				}
				if n == 0 {
					r.cut(far)
				}
				if n == 1 {
					r.compact()
					r.mend(far)
				}
			}
		})
	}
	all.Wait()
	r.mend(far)
	end := register(t, coord.NewGroup(near, "g"), coord.Registration{ID: "end", Wait: true})
	watchers.Wait()
	list, _, err := coord.NewGroup(near, "g").List(ctx)
	if err != nil || t.Failed() {
		t.Fatal(err)
	}
	t.Logf("%d left, %d failed, %d revoked, %v; %d there", left.Load(), failed.Load(),
		revoked.Load(), rolls["far"].went, len(list))
	// On a machine that stands still for seconds a member fails before it leaves, or a watch that
	// is not cut off loses its connection; nobody goes twice, or for a reason that is not his.
	went := rolls["near"].went
	if n := int64(went[coord.MemberLeft]); n > left.Load() {
		t.Errorf("%d left, of %d", n, left.Load())
	}
	if n := int64(went[coord.MemberRevoked]); n > revoked.Load() {
		t.Errorf("%d were revoked, of %d", n, revoked.Load())
	}
	n, want := 0, members*rounds
	for _, of := range went {
		n += of
	}
	if n > want || n < want-members {
		t.Errorf("%d went, want %d less those that are there", n, want)
	}
	if err := end.Leave(ctx); err != nil {
		t.Error(err)
	}
}
