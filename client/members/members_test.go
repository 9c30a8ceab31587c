package members_test

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

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/members"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
	"leasehold.dev/test/tier"
)

// registration describes a member and its session. The session uses Lease or, if Lease is nil, a
// new lease with the given TTL.
type registration struct {
	ID       string
	Metadata []byte
	TTL      time.Duration
	Lease    *client.Lease
	Wait     bool
}

func join(
	ctx context.Context, g *members.Group, r registration,
) (*members.Membership, error) {
	s, err := (*client.Session)(nil), error(nil)
	if r.Lease != nil {
		s = r.Lease.Session()
	} else if s, err = g.Client().Open(ctx, client.Grant{TTL: r.TTL, Owner: r.ID}); err != nil {
		return nil, err
	}
	if r.Wait {
		return g.Register(ctx, s, r.ID, r.Metadata)
	}
	return g.TryRegister(ctx, s, r.ID, r.Metadata)
}

func register(t *testing.T, g *members.Group, r registration) *members.Membership {
	t.Helper()
	return rig.Must[*members.Membership](t)(join(rig.Soon(t), g, r))
}

// format formats events for comparison.
func format(list []members.Event) string {
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s %v %s", e.Member.ID, e.Change, e.Member.Metadata))
	}
	return strings.Join(out, "; ")
}

// TestGroup checks that List returns the members, and that a watch delivers each join, change and
// end in order. Each end has a reason.
func TestGroup(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		g := members.New(c, "g")
		// These keys belong to another group whose name starts with this group's name.
		register(t, members.New(c, "g/sub"), registration{ID: "x"})
		a := register(t, g, registration{ID: "a", Metadata: []byte("1"), TTL: time.Minute})
		w := rig.Must[*members.Watch](t)(g.Watch(ctx))
		defer w.Close()
		expect := func(want string) {
			t.Helper()
			if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		expect("a joined 1")
		if err := a.Update(ctx, []byte("2")); err != nil {
			t.Fatal(err)
		}
		expect("a updated 2")
		_, err := join(ctx, g, registration{ID: "a"})
		if !errors.Is(err, members.ErrExists) || !rig.Blames(err, a.Lease().ID()) ||
			!strings.Contains(err.Error(), `owner "a"`) {
			t.Errorf("a second member a: %v", err)
		}
		if err := a.Release(ctx); err != nil {
			t.Fatal(err)
		}
		expect("a left 2")
		if err := a.Update(ctx, nil); !errors.Is(err, client.ErrReleased) || a.Err() == nil {
			t.Errorf("update after release: %v, %v", err, a.Err())
		}
		dead := register(t, g, registration{ID: "b", TTL: 4 * time.Second})
		expect("b joined ")
		dead.Lease().Close()
		// The next incarnation of b waits until the first has expired.
		b := register(t, g, registration{ID: "b", TTL: time.Minute, Wait: true})
		expect("b failed ")
		expect("b joined ")
		if err := c.Revoke(ctx, b.Lease().Ref()); err != nil {
			t.Fatal(err)
		}
		expect("b left ")
		if list, _, err := g.List(ctx); err != nil || len(list) != 0 {
			t.Errorf("List: %v, %v", list, err)
		}
		for _, id := range []string{"", "a/b"} {
			if _, err := join(ctx, g, registration{ID: id}); !errors.Is(err, client.ErrInvalid) {
				t.Errorf("ID %q: %v", id, err)
			}
		}
	})
}

// TestGroupSharedLease checks that members that share a lease leave separately and fail together.
func TestGroupSharedLease(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		g := members.New(c, "g")
		l := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
		a := register(t, g, registration{ID: "a", Lease: l})
		register(t, g, registration{ID: "b", Lease: l})
		if _, err := join(ctx, g, registration{ID: "b", Lease: l}); !errors.Is(
			err, members.ErrExists) {
			t.Errorf("the same ID twice on one lease: %v", err)
		}
		if err := a.Release(ctx); err != nil || l.Err() != nil {
			t.Fatal(err, l.Err())
		}
		list, _, err := g.List(ctx)
		if err != nil || len(list) != 1 || list[0].ID != "b" || list[0].Lease != l.ID() {
			t.Errorf("List: %v, %v", list, err)
		}
		// T16: a registration that waits for an ID fails promptly when its own lease ends.
		mine := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
		waiting := make(chan error, 1)
		go func() {
			_, err := join(ctx, g, registration{ID: "b", Lease: mine, Wait: true})
			waiting <- err
		}()
		if err := mine.Revoke(ctx); err != nil {
			t.Fatal(err)
		}
		err = <-waiting
		if !errors.Is(err, client.ErrReleased) && !errors.Is(err, client.ErrLeaseNotFound) {
			t.Errorf("the waiting registration failed with %v", err)
		}
	})
}

// TestRegisterWaitsForRelease checks that a registration gets its ID even if the other member
// leaves in the next revision, before the watch for it has started.
func TestRegisterWaitsForRelease(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		g := members.New(r.Dial(client.Config{}), "g")
		a := register(t, g, registration{ID: "a", TTL: time.Minute})
		c := rig.Through(t, r.Members[0], rig.Watches, func(n int) *pb.Response {
			if n == 1 {
				if err := a.Release(ctx); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		register(t, members.New(c, "g"), registration{ID: "a", TTL: time.Minute, Wait: true})
	})
}

// TestGroupWatchCompacted checks that a watch delivers only the differences after a compaction. It
// does not repeat joins or ends, and delivers nothing for members that remained (W1).
func TestGroupWatchCompacted(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		away := r.Dial(client.Config{Silence: time.Second})
		ctx := rig.Soon(t)
		g := members.New(c, "g")
		held := make(map[string]*members.Membership)
		add := func(id, metadata string) {
			held[id] = register(t, g, registration{
				ID: id, Metadata: []byte(metadata), TTL: time.Minute,
			})
		}
		for _, id := range []string{"stays", "goes", "changes", "returns"} {
			add(id, "1")
		}
		w := rig.Must[*members.Watch](t)(members.New(away, "g").Watch(ctx))
		defer w.Close()
		want := "changes joined 1; goes joined 1; returns joined 1; stays joined 1"
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		r.Cut(away)
		for _, id := range []string{"goes", "returns"} {
			if err := held[id].Release(ctx); err != nil {
				t.Fatal(err)
			}
		}
		add("returns", "2")
		add("new", "1")
		if err := held["changes"].Update(ctx, []byte("2")); err != nil {
			t.Fatal(err)
		}
		r.Compact()
		r.Mend(away)
		want = "goes gone 1; returns gone 1; changes updated 2; new joined 1; returns joined 2"
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != want {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
		// The watch continues after this point.
		if err := held["stays"].Release(ctx); err != nil {
			t.Fatal(err)
		}
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != "stays left 1" {
			t.Fatalf("got %q, want a leave", got)
		}
	})
}

// TestGroupLostAnswers checks that registrations and updates take effect once if their responses
// are lost, and that a late attempt does not register a member again after it has left.
func TestGroupLostAnswers(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		watcher := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		w := rig.Must[*members.Watch](t)(members.New(watcher, "g").Watch(ctx))
		defer w.Close()
		g := members.New(c, "g")
		shared := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
		var want, got []string
		for n := range 12 {
			id := fmt.Sprint(n)
			cfg := registration{ID: id, TTL: time.Minute}
			if n%2 == 0 {
				cfg.Lease = shared
			}
			r.Lose(c)
			m := register(t, g, cfg)
			r.Lose(c)
			if err := m.Update(ctx, []byte("new")); err != nil {
				t.Fatal(err)
			}
			r.Lose(c)
			if err := m.Release(ctx); err != nil {
				t.Fatal(err)
			}
			want = append(want, id+" joined ", id+" updated new", id+" left new")
		}
		for len(got) < len(want) {
			list := rig.Must[[]members.Event](t)(w.Next(ctx))
			for i := range list {
				got = append(got, format(list[i:i+1]))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// tracker checks the events that a watch delivers.
type tracker struct {
	t      *testing.T
	name   string
	joined map[string]int64 // revision at which each current member joined
	went   map[members.Change]int
}

// apply checks that only absent members join, and that only current members change or end.
func (r *tracker) apply(e members.Event) {
	_, there := r.joined[e.Member.ID]
	switch e.Change {
	case members.Joined:
		if there {
			r.t.Errorf("%s: %s joined twice", r.name, e.Member.ID)
		}
		r.joined[e.Member.ID] = e.Member.Joined
	case members.Updated:
		if r.joined[e.Member.ID] != e.Member.Joined {
			r.t.Errorf("%s: %s changed, but is not a member", r.name, e.Member.ID)
		}
	default:
		if r.joined[e.Member.ID] != e.Member.Joined {
			r.t.Errorf("%s: %s is %v, but was not a member", r.name, e.Member.ID, e.Change)
		}
		delete(r.joined, e.Member.ID)
		r.went[e.Change]++
	}
}

// TestGroupRandom checks that each watch delivers a consistent history that ends in the actual
// state (W1), in a cluster of three members. A watch that was never disconnected for long delivers
// each end with its reason. Members register, change, leave, die and are revoked at random.
// Meanwhile responses are lost, one watcher is repeatedly disconnected, and revisions are
// compacted.
func TestGroupRandom(t *testing.T) {
	tier.Campaign(t)
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 3)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		const ids, rounds = 5, 6
		near, far := r.Dial(client.Config{}), r.Dial(client.Config{Silence: time.Second})
		trackers := make(map[string]*tracker)
		var watchers sync.WaitGroup
		for name, c := range map[string]*client.Client{"near": near, "far": far} {
			w := rig.Must[*members.Watch](t)(members.New(c, "g").Watch(ctx))
			seen := &tracker{
				t: t, name: name, joined: make(map[string]int64),
				went: make(map[members.Change]int),
			}
			trackers[name] = seen
			watchers.Go(func() {
				defer w.Close()
				for e, err := range w.Events(ctx) {
					switch {
					case err != nil:
						t.Errorf("%s: %v", name, err)
					case e.Member.ID == "end":
						return
					default:
						seen.apply(e)
					}
				}
			})
		}
		var left, failed, revoked, ended atomic.Int64
		var all sync.WaitGroup
		for n := range ids {
			c := r.Dial(client.Config{Silence: time.Second})
			g := members.New(c, "g")
			all.Go(func() {
				for range rounds {
					if rand.IntN(3) == 0 {
						r.Lose(c)
					}
					m, err := join(ctx, g, registration{
						ID: fmt.Sprint(n), TTL: 2 * time.Second, Wait: true,
					})
					if errors.Is(err, client.ErrExpired) || errors.Is(err, client.ErrLeaseNotFound) {
						ended.Add(1) // the machine was paused for that long
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					err = m.Update(ctx, []byte("x"))
					if err != nil && m.Err() == nil && !errors.Is(err, client.ErrReleased) {
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
						if err := m.Release(ctx); err != nil {
							t.Error(err)
						}
						left.Add(1)
					}
					if n == 0 {
						r.Cut(far)
					}
					if n == 1 {
						r.Compact()
						r.Mend(far)
					}
				}
			})
		}
		all.Wait()
		r.Mend(far)
		end := register(t, members.New(near, "g"), registration{ID: "end", Wait: true})
		watchers.Wait()
		list, _, err := members.New(near, "g").List(ctx)
		if err != nil || t.Failed() {
			t.Fatal(err)
		}
		t.Logf("%d left, %d failed, %d revoked, %d did not join, %v; %d there", left.Load(),
			failed.Load(), revoked.Load(), ended.Load(), trackers["far"].went, len(list))
		// If the machine pauses for several seconds, a member may fail before it leaves, or the
		// watch that the test never cuts off may lose its connection anyway. No member may end
		// twice, or for the wrong reason.
		went := trackers["near"].went
		// because failed registrations are withdrawn
		most := left.Load() + revoked.Load() + ended.Load()
		if n := int64(went[members.Left]); n > most {
			t.Errorf("%d members left, want at most %d", n, most)
		}
		n, came := 0, int(left.Load()+failed.Load()+revoked.Load())
		for _, of := range went {
			n += of
		}
		if n > ids*rounds || n < came-ids { // some members expire while they join
			t.Errorf("%d members went, want %d minus those still there", n, came)
		}
		if err := end.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}
