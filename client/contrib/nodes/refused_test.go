package nodes_test

import (
	"errors"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
	"leasehold.dev/test/virtual"
)

// Types of requests that tests answer in place of the member.
func isRead(r *pb.Request) bool  { return rig.Does(r, (*pb.Op).GetReadRange) }
func isOrder(r *pb.Request) bool { return rig.Does(r, (*pb.Op).GetPut) && !isTake(r) }
func isTake(r *pb.Request) bool  { return rig.Does(r, (*pb.Op).GetGrant) }

// TestRefused makes the cluster refuse each request of each call in turn. The call must return the
// error and stop. A node that could not be recorded must not be listed as live.
func TestRefused(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		type call = func(t *testing.T, s *nodes.Set, c *client.Client) error
		primary := func(t *testing.T, s *nodes.Set, _ *client.Client) error {
			_, err := join(t, s, nodes.Config{ID: "n", TTL: time.Minute}).Primary(ctx)
			return err
		}
		// others makes another node join and become the primary.
		others := func(t *testing.T, s *nodes.Set) *nodes.Primacy {
			n := join(t, s, nodes.Config{ID: "other", TTL: time.Minute})
			return rig.Must[*nodes.Primacy](t)(n.Primary(ctx))
		}
		switches := func(t *testing.T, s *nodes.Set, _ *client.Client) error { return s.Switch(ctx, "n") }
		for name, x := range map[string]struct {
			match func(*pb.Request) bool
			call  call
		}{
			"join": {rig.Puts, func(t *testing.T, s *nodes.Set, c *client.Client) error {
				_, err := s.Join(ctx, nodes.Config{ID: "n", TTL: time.Minute})
				rig.Keys(t, direct, "join/", 0)
				return err
			}},
			"join, the lease": {rig.Grants, func(_ *testing.T, s *nodes.Set, _ *client.Client) error {
				_, err := s.Join(ctx, nodes.Config{ID: "n", Wait: true})
				return err
			}},
			"release a node": {rig.Revokes, func(t *testing.T, s *nodes.Set, _ *client.Client) error {
				return join(t, s, nodes.Config{ID: "n", TTL: time.Minute}).Release(ctx)
			}},
			"release a role": {rig.Revokes, func(t *testing.T, s *nodes.Set, _ *client.Client) error {
				return others(t, s).Release(ctx)
			}},
			"join, which looks": {rig.Reads, func(t *testing.T, s *nodes.Set, c *client.Client) error {
				join(t, s, nodes.Config{ID: "n", TTL: time.Minute})
				_, err := s.Join(ctx, nodes.Config{ID: "n", Wait: true})
				return err
			}},
			"join, which waits": {rig.Watches, func(t *testing.T, s *nodes.Set, c *client.Client) error {
				join(t, s, nodes.Config{ID: "n", TTL: time.Minute})
				_, err := s.Join(ctx, nodes.Config{ID: "n", Wait: true})
				return err
			}},
			"primary, which looks": {isRead, primary},
			"primary, which takes": {isTake, primary},
			"primary, which waits": {rig.Watches, func(t *testing.T, s *nodes.Set, c *client.Client) error {
				others(t, s)
				return primary(t, s, c)
			}},
			"lead": {isTake, func(t *testing.T, s *nodes.Set, _ *client.Client) error {
				return join(t, s, nodes.Config{ID: "n", TTL: time.Minute}).Lead(ctx, nil)
			}},
			"await, which looks": {rig.Reads, func(t *testing.T, s *nodes.Set, _ *client.Client) error {
				return others(t, s).AwaitSwitch(ctx)
			}},
			"await, which waits": {rig.Watches, func(t *testing.T, s *nodes.Set, _ *client.Client) error {
				return others(t, s).AwaitSwitch(ctx)
			}},
			"switch, which looks": {isRead, switches},
			"switch, which orders": {isOrder, func(t *testing.T, s *nodes.Set, c *client.Client) error {
				join(t, s, nodes.Config{ID: "n", TTL: time.Minute})
				return switches(t, s, c)
			}},
			"switch, which waits": {rig.Watches, func(t *testing.T, s *nodes.Set, c *client.Client) error {
				join(t, s, nodes.Config{ID: "n", TTL: time.Minute})
				return switches(t, s, c)
			}},
			"list, the keys": {rig.Reads, func(_ *testing.T, s *nodes.Set, _ *client.Client) error {
				v, err := s.List(ctx)
				if len(v.Nodes) > 0 {
					t.Errorf("listed %+v", v)
				}
				return err
			}},
			"list, the leases": {rig.Lists, func(t *testing.T, s *nodes.Set, _ *client.Client) error {
				others(t, s)
				v, err := s.Watch().Next(ctx)
				if len(v.Nodes) > 0 {
					t.Errorf("listed %+v", v)
				}
				return err
			}},
			"watch": {rig.Watches, func(_ *testing.T, s *nodes.Set, _ *client.Client) error {
				w := s.Watch()
				rig.Must[nodes.View](t)(w.Next(ctx))
				_, err := w.Next(ctx)
				return err
			}},
			"forget": {
				func(r *pb.Request) bool { return r.GetDeleteRange() != nil },
				func(_ *testing.T, s *nodes.Set, _ *client.Client) error { return s.Forget(ctx, "n") },
			},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				c := rig.Through(t, r.Members[0], x.match, rig.Refused)
				if err := x.call(t, nodes.New(c, name), c); !errors.Is(err, client.ErrPermissionDenied) {
					t.Error(err)
				}
			})
		}
	})
}

// unsureThenRefused leaves the outcome of the first attempt unknown and refuses the second.
func unsureThenRefused(n int) *pb.Response {
	if a := rig.Unsure(func() {})(n); a != nil {
		return a
	}
	return rig.Refused(n)
}

// TestUnknownOutcome leaves the outcome of a change's first attempt unknown and makes the cluster
// refuse the second. The error must report both the unknown outcome and the reason for the refusal.
func TestUnknownOutcome(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		for name, x := range map[string]struct {
			match func(*pb.Request) bool
			call  func(t *testing.T, s *nodes.Set) error
		}{
			"join": {rig.Puts, func(_ *testing.T, s *nodes.Set) error {
				_, err := s.Join(ctx, nodes.Config{ID: "n", TTL: time.Minute})
				return err
			}},
			"switch": {isOrder, func(t *testing.T, s *nodes.Set) error {
				join(t, s, nodes.Config{ID: "n", TTL: time.Minute})
				return s.Switch(ctx, "n")
			}},
			// The node can take the role, but releasing it is refused.
			"primary": {
				func(r *pb.Request) bool { return isTake(r) || rig.Revokes(r) },
				func(t *testing.T, s *nodes.Set) error {
					_, err := join(t, s, nodes.Config{ID: "n", TTL: time.Minute}).Primary(ctx)
					return err
				},
			},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				c := rig.Through(t, r.Members[0], x.match, unsureThenRefused)
				err := x.call(t, nodes.New(c, name))
				if !errors.Is(err, client.ErrUnknownOutcome) ||
					!errors.Is(err, client.ErrPermissionDenied) {
					t.Error(err)
				}
			})
		}
	})
}

// TestOrderCanceled makes a node leave while the outcome of an order to switch to it is unknown. The
// order is attached to the node's lease, so it is canceled even if it was recorded.
func TestOrderCanceled(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		n := join(t, nodes.New(r.Dial(client.Config{}), "n"), nodes.Config{ID: "n", TTL: time.Minute})
		c := rig.Through(t, r.Members[0], isOrder, rig.Unsure(func() {
			if err := n.Release(ctx); err != nil {
				t.Error(err)
			}
		}))
		err := nodes.New(c, "n").Switch(ctx, "n")
		if !errors.Is(err, nodes.ErrDown) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Error(err)
		}
	})
}

// TestUnsureIsRetried leaves the outcome of a change's first attempt unknown and makes the cluster
// drop the client's session. The change must still be made, whether or not the first attempt was
// applied.
func TestUnsureIsRetried(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for name, match := range map[string]func(*pb.Request) bool{
			"join": rig.Puts, "primary": isTake, "switch": isOrder,
		} {
			virtual.Step(t, name, func(t *testing.T) {
				c := rig.Through(t, r.Members[0], match, rig.Unsure(func() {}))
				s := nodes.New(c, name)
				n := join(t, s, nodes.Config{ID: "n", TTL: time.Minute})
				rig.Keys(t, direct, name+"/known/", 1)
				switched := rig.Async(func() (any, error) { return nil, s.Switch(ctx, "n") })
				if name == "switch" {
					rig.Keys(t, direct, name+"/order", 1)
				}
				rig.Must[*nodes.Primacy](t)(n.Primary(ctx))
				if a := <-switched; a.Err != nil {
					t.Error(a.Err)
				}
			})
		}
	})
}
