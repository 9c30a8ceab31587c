package lease

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestFirst checks that the pages of a listing, taken together, equal All, for every page size and
// owner, even with free slots.
func TestFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	l := New(Config{})
	for range 700 {
		terms := Terms{ID: ID(r.Int64N(2000) + 1), TTL: 1000}
		if r.IntN(3) == 0 {
			terms.Owner = "o"
		}
		if _, err := l.Grant(terms); err != nil {
			_, _ = l.Revoke(terms.ID)
		}
	}
	v := l.View()
	for _, most := range []int{0, 1, 2, 7, 100, 10_000} {
		for _, owner := range []string{"", "o", "nobody"} {
			for range 20 {
				after := ID(r.Int64N(2200))
				var want []Info
				for i := range v.All() {
					if i.ID > after && (owner == "" || i.Owner == owner) && len(want) < most {
						want = append(want, i)
					}
				}
				var filter func(*Info) bool
				if owner != "" {
					filter = func(i *Info) bool { return i.Owner == owner }
				}
				got := v.First(after, most, filter)
				if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
					t.Fatalf("%d of %q after %d: %v, want %v", most, owner, after, got, want)
				}
			}
		}
	}
}

// TestFirstFilterCalls checks that the filter is not called for a lease that cannot be on the page.
func TestFirstFilterCalls(t *testing.T) {
	l := New(Config{})
	for id := range ID(100) {
		mustGrant(t, l, Terms{ID: id + 1, TTL: 1000})
	}
	for _, most := range []int{0, 10} {
		asked := 0
		if got := l.View().First(5, most, func(*Info) bool { asked++; return true }); len(got) != most {
			t.Errorf("%d leases, want %d", len(got), most)
		}
		if asked != most {
			t.Errorf("of %d leases it was asked whether they are among %d", asked, most)
		}
	}
}
