package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
	"leasehold.dev/lease"
)

func join(t testing.TB, s *coord.Nodes, cfg coord.NodeConfig) *coord.Node {
	t.Helper()
	return ok[*coord.Node](t)(s.Join(soon(t), cfg))
}

// until waits until a view of the nodes is as asked.
func until(t testing.TB, s *coord.Nodes, what string, is func(*coord.NodesView) bool) {
	t.Helper()
	ctx := soon(t)
	w := s.Watch()
	for {
		v, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("in vain: %s: %v", what, err)
		}
		if is(&v) {
			return
		}
	}
}

// Goal: the classical example, from both sides: one issuer, three nodes. A node whose
// heartbeats stay away becomes suspect and then down, and knows that itself first. The primary
// is switched on order, and after a death. Method: one node's connections are cut.
func TestNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	ctx := soon(t)
	s := coord.NewNodes(c, "n")
	mute := r.dial(client.Config{})
	a := join(t, coord.NewNodes(mute, "n"), coord.NodeConfig{
		ID: "a", TTL: 5 * time.Second, Metadata: []byte("host-a"),
	})
	b := join(t, s, coord.NodeConfig{ID: "b", TTL: time.Minute})
	join(t, s, coord.NodeConfig{ID: "c", TTL: time.Minute})
	first := ok[*coord.Primacy](t)(a.Primary(ctx))
	until(t, s, "all are alive", func(v *coord.NodesView) bool {
		return len(v.Nodes) == 3 && v.Primary == "a" && v.Token == first.Token() &&
			v.Node("a").State == coord.NodeAlive && string(v.Node("a").Metadata) == "host-a"
	})
	if !a.Alive() || a.State() != coord.NodeAlive || first.Err() != nil {
		t.Errorf("a is %v, primary %v", a.State(), first.Err())
	}
	if _, err := s.Join(ctx, coord.NodeConfig{ID: "b"}); !errors.Is(err, client.ErrNameTaken) {
		t.Errorf("a second b: %v", err)
	}

	next := make(chan *coord.Primacy, 1)
	go func() {
		p, err := b.Primary(ctx)
		if err == nil && first.Err() == nil { // L4
			err = errors.New("there were two primaries")
		}
		if err != nil {
			t.Error(err)
		}
		next <- p
	}()
	r.cut(mute)
	until(t, s, "a is suspect", func(v *coord.NodesView) bool {
		return v.Node("a").State == coord.NodeSuspect && v.Primary == "a"
	})
	until(t, s, "a is down", func(v *coord.NodesView) bool {
		return v.Node("a").State == coord.NodeDown
	})
	if a.Alive() || a.State() != coord.NodeDown {
		t.Error("the issuer knew earlier than the node that it is down")
	}
	select {
	case <-first.Context().Done():
	case <-ctx.Done():
		t.Error("the context of a primary that is down goes on")
	}
	second := <-next
	if t.Failed() {
		return
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	if err := s.Switch(ctx, "a"); !errors.Is(err, coord.ErrNodeDown) {
		t.Errorf("switch to a node that is down: %v", err)
	}
	if err := s.Forget(ctx, "a"); err != nil {
		t.Error(err)
	}
	if v := ok[coord.NodesView](t)(s.List(ctx)); len(v.Nodes) != 2 || v.Primary != "b" {
		t.Errorf("listed %+v", v)
	}
}

// Goal: an order to switch is obeyed by a primary that listens, and waits for the end of the
// lease of one that does not; nobody else takes the role in between. A write of the old
// primary that comes late does nothing.
func TestNodesSwitch(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	ctx := soon(t)
	s := coord.NewNodes(c, "n")
	nodes := make(map[string]*coord.Node)
	var all sync.WaitGroup
	stop, end := context.WithCancel(ctx)
	var mu sync.Mutex
	var led []string
	for _, id := range []string{"a", "b", "c"} {
		nodes[id] = join(t, s, coord.NodeConfig{ID: id, TTL: time.Minute})
		all.Go(func() {
			for stop.Err() == nil {
				err := nodes[id].Lead(stop, func(ctx context.Context, _ *coord.Primacy) error {
					mu.Lock()
					led = append(led, id)
					mu.Unlock()
					<-ctx.Done()
					return context.Cause(ctx)
				})
				if stop.Err() == nil && !errors.Is(err, coord.ErrSwitched) {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	for _, id := range []string{"c", "a", "b", "c"} {
		if err := s.Switch(ctx, id); err != nil {
			t.Fatal(err)
		}
		if v := ok[coord.NodesView](t)(s.List(ctx)); v.Primary != id {
			t.Errorf("the primary is %q, not %q", v.Primary, id)
		}
	}
	end()
	all.Wait()
	// Whoever was first, only those who were ordered followed.
	if got := fmt.Sprint(led[len(led)-3:]); got != "[a b c]" {
		t.Errorf("primaries were %v", led)
	}

	deaf := ok[*coord.Primacy](t)(join(t, s, coord.NodeConfig{
		ID: "d", TTL: 3 * time.Second,
	}).Primary(ctx))
	go func() { // the node does not listen to orders, and dies some time
		_ = deaf.AwaitSwitch(ctx)
		deaf.Lease().Close()
	}()
	chosen := make(chan *coord.Primacy, 1)
	go func() {
		p, err := nodes["b"].Primary(ctx)
		if err != nil || deaf.Err() == nil {
			t.Errorf("primary: %v, the one before: %v", err, deaf.Err())
		}
		chosen <- p
	}()
	if err := s.Switch(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	p := <-chosen
	for _, tc := range []struct {
		p    *coord.Primacy
		want bool
	}{{deaf, false}, {p, true}} {
		w, err := c.Txn(ctx, client.Txn{
			If: []client.Compare{tc.p.Owner()}, Then: []client.Op{client.Put{Key: "w"}},
		})
		if err != nil || w.Succeeded != tc.want {
			t.Errorf("a fenced write: %v, %v", w.Succeeded, err)
		}
	}
	if err := p.Resign(ctx); err != nil || p.Err() == nil {
		t.Errorf("resign: %v, %v", err, p.Err())
	}
}

// Goal: T16 and T17: who waits for the role and loses its own lease is told so, and does not
// become the primary.
func TestNodesWaiterGoesDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c := r.dial(client.Config{})
	ctx := soon(t)
	s := coord.NewNodes(c, "n")
	a := join(t, s, coord.NodeConfig{ID: "a", TTL: time.Minute})
	b := join(t, s, coord.NodeConfig{ID: "b", TTL: time.Minute})
	p := ok[*coord.Primacy](t)(a.Primary(ctx))
	told := make(chan error, 1)
	go func() {
		_, err := b.Primary(ctx)
		told <- err
	}()
	if err := b.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-told; !errors.Is(err, coord.ErrNodeDown) {
		t.Errorf("told %v", err)
	}
	if err := a.Leave(ctx); err != nil || p.Err() == nil || p.Context().Err() == nil {
		t.Errorf("the node left (%v) and its primacy goes on", err)
	}
	// T25: the node that comes back is another, with another token.
	back := join(t, s, coord.NodeConfig{ID: "a", TTL: time.Minute})
	if back.Lease().Token() <= a.Lease().Token() || a.Alive() {
		t.Errorf("token %d after %d", back.Lease().Token(), a.Lease().Token())
	}
}

// Goal: never two primaries, and tokens that rise (L4, L5), with three members, whatever
// happens to nodes and connections. Method: nodes compete, die without a word, are cut off, lose
// answers, resign, and come back, at random; whoever becomes the primary looks whether the
// one before still believes to be it.
func TestNodesRandom(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const rounds, nodes = 4, 4
	var (
		mu     sync.Mutex
		before *coord.Primacy
		high   lease.Token
	)
	check := func(p *coord.Primacy) {
		mu.Lock()
		defer mu.Unlock()
		if before != nil && before.Err() == nil {
			t.Error("two primaries")
		}
		if p.Token() <= high {
			t.Errorf("token %d after %d", p.Token(), high)
		}
		before, high = p, p.Token()
	}
	clients := make([]*client.Client, nodes)
	for i := range clients {
		clients[i] = r.dial(client.Config{Silence: time.Second})
	}
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			s := coord.NewNodes(c, "n")
			for done := 0; done < rounds && !t.Failed(); {
				r.mend(c)
				n, err := s.Join(ctx, coord.NodeConfig{
					ID: fmt.Sprint(i), TTL: 500 * time.Millisecond, Wait: true,
				})
				if err != nil {
					if ctx.Err() != nil {
						t.Error(err)
						return
					}
					continue
				}
				if rand.IntN(3) == 0 {
					r.lose(c)
				}
				p, err := n.Primary(ctx)
				if err != nil {
					_ = n.Leave(ctx)
					continue
				}
				check(p)
				done++
				switch rand.IntN(4) {
				case 0: // dies
					p.Lease().Close()
					n.Lease().Close()
				case 1: // is cut off
					r.cut(c)
					<-p.Context().Done()
				case 2: // leaves without giving the role back
					_ = n.Leave(ctx)
					p.Lease().Close()
				default:
					_ = p.Resign(ctx)
					_ = n.Leave(ctx)
				}
			}
		})
	}
	all.Wait()
}
