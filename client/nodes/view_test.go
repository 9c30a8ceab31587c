package nodes

import (
	"testing"
	"time"
)

// Goal: a view is another if anything in it is but what remains of leases.
func TestViewsDiffer(t *testing.T) {
	t.Parallel()
	view := func() *View {
		return &View{
			Nodes: []Info{
				{ID: "a", State: Alive, Metadata: []byte("1"), Token: 7, TTL: time.Minute, Remaining: 1},
				{ID: "b", State: Down},
			},
			Primary: "a", Token: 8,
		}
	}
	for name, x := range map[string]struct {
		change func(v *View)
		same   bool
	}{
		"nothing":   {func(*View) {}, true},
		"remaining": {func(v *View) { v.Nodes[0].Remaining++ }, true},
		"primary":   {func(v *View) { v.Primary = "b" }, false},
		"role":      {func(v *View) { v.Token++ }, false},
		"fewer":     {func(v *View) { v.Nodes = v.Nodes[:1] }, false},
		"id":        {func(v *View) { v.Nodes[1].ID = "c" }, false},
		"state":     {func(v *View) { v.Nodes[0].State = Suspect }, false},
		"token":     {func(v *View) { v.Nodes[0].Token++ }, false},
		"ttl":       {func(v *View) { v.Nodes[0].TTL++ }, false},
		"metadata":  {func(v *View) { v.Nodes[0].Metadata = nil }, false},
	} {
		v := view()
		if x.change(v); v.same(view()) != x.same {
			t.Errorf("%s: the same: %v", name, !x.same)
		}
	}
	if b := view().Node("b"); b.ID != "b" || b.State != Down {
		t.Errorf("found %+v", b)
	}
}

// Goal: a watch looks again a few times in the shortest TTL of a node that is up, but not all the
// time.
func TestPauseOfWatch(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, x := range []struct {
		nodes []Info
		want  time.Duration
	}{
		{nil, 10 * s / 12},
		{[]Info{{State: Alive, TTL: 60 * s}}, 10 * s / 12},
		{[]Info{{State: Alive, TTL: 6 * s}, {State: Suspect, TTL: 3 * s}, {State: Down}}, s / 4},
		{[]Info{{State: Suspect, TTL: 3 * s}, {State: Alive, TTL: 6 * s}}, s / 4},
		{[]Info{{State: Alive, TTL: s / 10}}, s / 50},
	} {
		if got := (&View{Nodes: x.nodes}).pause(); got != x.want {
			t.Errorf("%+v: %v, want %v", x.nodes, got, x.want)
		}
	}
}
