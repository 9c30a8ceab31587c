package lease

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAccounts checks that a lease stays on its account until it is moved or ends, that a new lease
// with its ID has no account, and that a view keeps the accounts as they were. It runs random
// commands on a few leases in three pages and compares the result with a map.
func TestAccounts(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	l := New(Config{MinTTL: 1, MaxTTL: 1000})
	l.Promote(0)
	want := make(map[ID]string)
	type picture struct {
		view View
		want map[ID]string
	}
	var pictures []picture
	for range 30_000 {
		id := ID(1 + rng.IntN(3*pageSize))
		switch rng.IntN(7) {
		case 0, 1:
			terms := Terms{ID: id, TTL: 1000, LockDelay: TTL(rng.IntN(2))}
			if _, err := l.Grant(terms); err == nil && want[id] != "" {
				t.Fatalf("lease %d is granted twice", id)
			}
		case 2:
			account := []string{"", "alice", "bob"}[rng.IntN(3)]
			if _, ok := l.Lookup(id); ok {
				want[id] = account
			}
			l.Charge(id, account)
		case 3:
			ended, _ := l.Revoke(id)
			if ended.Account != want[id] {
				t.Fatalf("lease %d ends on account %q, want %q", id, ended.Account, want[id])
			}
			delete(want, id)
		case 4:
			info, ok := l.Lookup(id)
			ended, _ := l.Expire(Due{ID: id, Token: info.Token, Stamp: info.Stamp})
			if !ok || !ended.Gone {
				break
			}
			if ended.Account != want[id] {
				t.Fatalf("lease %d expires on account %q, want %q", id, ended.Account, want[id])
			}
			delete(want, id)
		case 5:
			if info, ok := l.Lookup(id); ok {
				// This fails if the lease is delayed.
				_, _ = l.HandOver(id, info.Token, Terms{Principal: "eve"})
			}
		case 6:
			if rng.IntN(300) == 0 {
				pictures = append(pictures, picture{l.View(), maps.Clone(want)})
			}
		}
		if l.Account(id) != want[id] {
			t.Fatalf("lease %d is on account %q, want %q", id, l.Account(id), want[id])
		}
	}
	if err := l.CheckInvariants(); err != nil {
		t.Error(err)
	}
	for _, p := range append(pictures, picture{l.View(), want}) {
		maps.DeleteFunc(p.want, func(_ ID, account string) bool { return account == "" })
		var order []ID
		for id, account := range p.view.Accounts() {
			if order = append(order, id); account != p.want[id] {
				t.Errorf("lease %d is on account %q, want %q", id, account, p.want[id])
			}
		}
		if len(order) != len(p.want) || !slices.IsSorted(order) {
			t.Errorf("%d leases are on accounts, want %d; in order: %v",
				len(order), len(p.want), slices.IsSorted(order))
		}
	}
	if len(pictures) < 5 || len(want) < 50 {
		t.Errorf("%d pictures, %d leases on accounts", len(pictures), len(want))
	}
}
