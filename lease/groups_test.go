package lease

import "testing"

// TestMaxLeft checks that a group ends if too many leases leave it before its keeper asks which
// have left. This bounds the list kept for the keeper.
func TestMaxLeft(t *testing.T) {
	l := New(Config{})
	l.Promote(0)
	const g, ttl = 1, 10_000
	l.OpenGroup(g, ttl)
	for id := ID(1); id <= maxLeft+2; id++ {
		info, err := l.Grant(Terms{ID: id, TTL: ttl})
		if err != nil || !l.Join(g, id, info.Token) {
			t.Fatalf("lease %d: %v", id, err)
		}
	}
	for id := ID(1); id <= maxLeft+1; id++ {
		if has := l.HasGroup(g); !has {
			t.Fatalf("after %d leases have left, the group is over", id-1)
		}
		if _, err := l.Revoke(id); err != nil {
			t.Fatal(err)
		}
	}
	if left, ok := l.Left(g); ok {
		t.Errorf("the group goes on, with %d leases that have left", len(left))
	}
}
