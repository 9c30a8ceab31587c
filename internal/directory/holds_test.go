package directory

import (
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// heldBy returns a cache whose lease holds the given keys.
func heldBy(id lease.ID, token lease.Token, keys ...string) *cache {
	c := &cache{hold: hold{id: id, token: token}}
	for _, k := range keys {
		c.ranges = append(c.ranges, keyrange.Range{Key: k})
	}
	return c
}

// TestFences checks that a new hold is not filled until all commands admitted before it have been
// settled, because those commands did not wait for it. The hold must also wait for a later command
// that ends leases if an earlier command may have attached keys to those leases.
func TestFences(t *testing.T) {
	f := fences{settled: 1}
	first, second, last := heldBy(1, 1), heldBy(2, 2), heldBy(3, 3)
	f.begin(first)
	if !f.passed(first) {
		t.Error("a hold before any command waits")
	}
	f.admit(false) // command 1
	f.begin(second)
	f.admit(true) // command 2, which ends leases
	f.begin(last)
	f.admit(false) // command 3
	for below, want := range []bool{1: false, 2: false, 3: true} {
		if f.settle(uint64(below)); f.passed(second) != want {
			t.Errorf("settled below %d: passed %v", below, !want)
		}
	}
	if f.passed(last) != true || f.waiting != nil {
		t.Errorf("a hold behind the last that is settled: %v, %d wait", f.passed(last), len(f.waiting))
	}
}
