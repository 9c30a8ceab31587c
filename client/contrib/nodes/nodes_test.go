package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

func join(t testing.TB, s *nodes.Set, cfg nodes.Config) *nodes.Node {
	t.Helper()
	return rig.Must[*nodes.Node](t)(s.Join(rig.Soon(t), cfg))
}

// until waits for a view of the nodes that satisfies the function is.
func until(t testing.TB, s *nodes.Set, what string, is func(*nodes.View) bool) {
	t.Helper()
	ctx := rig.Soon(t)
	for v, err := range s.Watch().Views(ctx) {
		if err != nil {
			t.Fatalf("not reached: %s: %v", what, err)
		}
		if is(&v) {
			return
		}
	}
}

// TestNodes runs the classic example with one issuer and three nodes, and checks what the issuer
// and the nodes observe. A node whose heartbeats stop becomes suspect and then down, and it is the
// first to detect this. The primary changes when ordered, and after a node dies.
func TestNodes(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		s := nodes.New(c, "n")
		mute := r.Dial(client.Config{})
		a := join(t, nodes.New(mute, "n"), nodes.Config{
			ID: "a", TTL: 10 * time.Second, Metadata: []byte("host-a"),
		})
		b := join(t, s, nodes.Config{ID: "b", TTL: time.Minute})
		join(t, s, nodes.Config{ID: "c", TTL: time.Minute})
		first := rig.Must[*nodes.Primacy](t)(a.Primary(ctx))
		until(t, s, "all are alive", func(v *nodes.View) bool {
			return len(v.Nodes) == 3 && v.Primary == "a" && v.Token == first.Token() &&
				v.Node("a").State == nodes.Alive && string(v.Node("a").Metadata) == "host-a"
		})
		if a.Err() != nil || a.State() != nodes.Alive || first.Err() != nil {
			t.Errorf("a is %v, primary %v", a.State(), first.Err())
		}
		if _, err := s.Join(ctx, nodes.Config{ID: "b"}); !errors.Is(err, client.ErrNameTaken) {
			t.Errorf("a second b: %v", err)
		}

		next := make(chan *nodes.Primacy, 1)
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
		r.Cut(mute)
		until(t, s, "a is suspect", func(v *nodes.View) bool {
			return v.Node("a").State == nodes.Suspect && v.Primary == "a"
		})
		until(t, s, "a is down", func(v *nodes.View) bool {
			return v.Node("a").State == nodes.Down
		})
		if a.Err() == nil || a.State() != nodes.Down {
			t.Error("the issuer knew before the node that it was down")
		}
		select {
		case <-first.Context().Done():
		case <-ctx.Done():
			t.Error("the context of a primary that is down has not ended")
		}
		second := <-next
		if t.Failed() {
			return
		}
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		if err := s.Switch(ctx, "a"); !errors.Is(err, nodes.ErrDown) {
			t.Errorf("switch to a node that is down: %v", err)
		}
		if err := s.Forget(ctx, "a"); err != nil {
			t.Error(err)
		}
		if v := rig.Must[nodes.View](t)(s.List(ctx)); len(v.Nodes) != 2 || v.Primary != "b" {
			t.Errorf("listed %+v", v)
		}
	})
}

// TestNodesSwitch checks that a primary that listens for orders follows an order to switch. If the
// primary does not listen, the order takes effect when its lease ends. No other node takes the role
// in between, and late writes of the old primary fail.
func TestNodesSwitch(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		s := nodes.New(c, "n")
		members := make(map[string]*nodes.Node)
		var all sync.WaitGroup
		stop, end := context.WithCancel(ctx)
		var mu sync.Mutex
		var led []string
		for _, id := range []string{"a", "b", "c"} {
			members[id] = join(t, s, nodes.Config{ID: id, TTL: time.Minute})
			all.Go(func() {
				for stop.Err() == nil {
					err := members[id].Lead(stop, func(ctx context.Context, _ *nodes.Primacy) error {
						mu.Lock()
						led = append(led, id)
						mu.Unlock()
						<-ctx.Done()
						return context.Cause(ctx)
					})
					if stop.Err() == nil && !errors.Is(err, nodes.ErrSwitched) {
						t.Errorf("%s: %v", id, err)
					}
				}
			})
		}
		for _, id := range []string{"c", "a", "b", "c"} {
			if err := s.Switch(ctx, id); err != nil {
				t.Fatal(err)
			}
			if v := rig.Must[nodes.View](t)(s.List(ctx)); v.Primary != id {
				t.Errorf("the primary is %q, want %q", v.Primary, id)
			}
		}
		end()
		all.Wait()
		// Any node can be the first primary. After that, only ordered nodes become primary.
		if got := fmt.Sprint(led[len(led)-3:]); got != "[a b c]" {
			t.Errorf("primaries were %v", led)
		}

		deaf := rig.Must[*nodes.Primacy](t)(join(t, s, nodes.Config{
			ID: "d", TTL: 3 * time.Second,
		}).Primary(ctx))
		go func() { // the node ignores orders and eventually dies
			_ = deaf.AwaitSwitch(ctx)
			deaf.Lease().Close()
		}()
		chosen := make(chan *nodes.Primacy, 1)
		go func() {
			p, err := members["b"].Primary(ctx)
			if err != nil || deaf.Err() == nil {
				t.Errorf("primary: %v, previous one: %v", err, deaf.Err())
			}
			chosen <- p
		}()
		if err := s.Switch(ctx, "b"); err != nil {
			t.Fatal(err)
		}
		p := <-chosen
		for _, tc := range []struct {
			p    *nodes.Primacy
			want bool
		}{{deaf, false}, {p, true}} {
			w, err := c.Txn(ctx, store.Txn{
				If: []store.Compare{tc.p.Condition()}, Then: []store.Op{store.Put{Key: "w"}},
			})
			if err != nil || w.Succeeded != tc.want {
				t.Errorf("a fenced write: %v, %v", w.Succeeded, err)
			}
		}
		if err := p.Release(ctx); err != nil || p.Err() == nil {
			t.Errorf("resign: %v, %v", err, p.Err())
		}
	})
}

// TestNodesWaiterGoesDown checks that a node that loses its own lease while it waits for the role
// gets an error and does not become the primary (T16, T17).
func TestNodesWaiterGoesDown(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		s := nodes.New(c, "n")
		a := join(t, s, nodes.Config{ID: "a", TTL: time.Minute})
		b := join(t, s, nodes.Config{ID: "b", TTL: time.Minute})
		p := rig.Must[*nodes.Primacy](t)(a.Primary(ctx))
		result := make(chan error, 1)
		go func() {
			_, err := b.Primary(ctx)
			result <- err
		}()
		if err := b.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, nodes.ErrDown) {
			t.Errorf("Primary: %v", err)
		}
		if err := a.Release(ctx); err != nil || p.Err() == nil || p.Context().Err() == nil {
			t.Errorf("after the node left (%v), its primacy is still valid", err)
		}
		// T25: a node that comes back is a new incarnation with a new token.
		back := join(t, s, nodes.Config{ID: "a", TTL: time.Minute})
		if back.Lease().Token() <= a.Lease().Token() || a.Err() == nil {
			t.Errorf("token %d after %d", back.Lease().Token(), a.Lease().Token())
		}
	})
}
