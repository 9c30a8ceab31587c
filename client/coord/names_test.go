package coord_test

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
)

// Goal: pools and nodes whose name is that of others with more behind it are not theirs.
func TestNestedNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c, ctx := r.dial(client.Config{}), soon(t)
	for _, name := range []string{"x/held", "x/was", "x"} {
		p := ok[*coord.Pool](t)(coord.CreatePool(ctx, c, name, coord.PoolSpec{First: 1, Last: 1}))
		acquire(t, p, coord.PoolRequest{TTL: time.Minute})
		if l := ok[[]coord.PoolEntry](t)(p.List(ctx)); len(l) != 1 || l[0].ID != "1" {
			t.Errorf("pool %q has %+v", name, l)
		}
	}
	for _, name := range []string{"n/up", "n/known", "n"} {
		s := coord.NewNodes(c, name)
		ok[*coord.Node](t)(s.Join(ctx, coord.NodeConfig{ID: "1", TTL: time.Minute}))
		if v := ok[coord.NodesView](t)(s.List(ctx)); len(v.Nodes) != 1 || v.Nodes[0].ID != "1" {
			t.Errorf("nodes of %q: %+v", name, v)
		}
	}
}
