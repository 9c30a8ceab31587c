package api

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// heldKeys returns a lessor with two leases. Lease 1 has n keys: k0, k1, and so on. Lease 2 has a
// name and a single key.
func heldKeys(t *testing.T, n int) *lease.Lessor {
	t.Helper()
	l := lease.New(lease.Config{})
	grantOne(t, l, 1, "")
	grantOne(t, l, 2, "n")
	for i := range n {
		attachTo(t, l, 1, fmt.Sprint("k", i))
	}
	attachTo(t, l, 2, "n")
	return l
}

func grantOne(t *testing.T, l *lease.Lessor, id lease.ID, name string) {
	t.Helper()
	if _, err := l.Grant(lease.Terms{ID: id, TTL: 60_000, Name: name}); err != nil {
		t.Fatal(err)
	}
}

func attachTo(t *testing.T, l *lease.Lessor, id lease.ID, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if err := l.Attach(id, k); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGather gathers the keys of a lease with many keys. After each step, some of the keys found
// are detached, some are attached again, and some are new. No step gathers more keys than allowed,
// and keys that stay attached are found despite changes between steps. A lease that keeps changing
// is gathered in a limited number of steps.
func TestGather(t *testing.T) {
	const n = 3*maxGathered + 5
	off := func(l *lease.Lessor, keys []string) []string {
		for _, k := range keys {
			l.Detach(k)
		}
		return keys
	}
	// Each function returns the keys that do not stay attached.
	for name, between := range map[string]func(l *lease.Lessor, step int, found []string) []string{
		"nothing": func(*lease.Lessor, int, []string) []string { return nil },
		"the last keys are detached": func(l *lease.Lessor, _ int, found []string) []string {
			return off(l, found[len(found)-3:])
		},
		"the last key is attached again": func(l *lease.Lessor, step int, found []string) []string {
			if step > 3 {
				return nil
			}
			last := off(l, found[len(found)-1:])
			attachTo(t, l, 1, last...)
			return last
		},
		"all detached": func(l *lease.Lessor, _ int, found []string) []string { return off(l, found) },
		"a new key": func(l *lease.Lessor, step int, _ []string) []string {
			attachTo(t, l, 1, fmt.Sprint("new", step))
			return nil
		},
		"endless attach and detach": func(l *lease.Lessor, _ int, found []string) []string {
			last := off(l, found[len(found)-1:])
			attachTo(t, l, 1, last...)
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := heldKeys(t, n)
			list, steps, moved := []Held{{ID: 1}, {ID: 2}, {ID: 3}}, 0, make(map[string]bool)
			err := Gather(list, func(f func(*lease.Lessor)) error {
				before := len(list[0].Keys)
				f(l)
				steps++
				if more := len(list[0].Keys) - before; more > maxGathered && steps <= maxParts {
					t.Errorf("step %d gathered %d keys", steps, more)
				}
				for _, k := range between(l, steps, list[0].Keys) {
					moved[k] = true
				}
				return nil
			})
			found := make(map[string]bool)
			for _, k := range list[0].Keys {
				found[k] = true
			}
			missing := 0
			for i := range n {
				if k := fmt.Sprint("k", i); !moved[k] && !found[k] {
					missing++
				}
			}
			if err != nil || missing > 0 || steps < 4 || steps > maxParts+1 {
				t.Errorf("%d steps, error %v, %d keys not found", steps, err, missing)
			}
			if got := len(list[0].Keys); name == "nothing" && (got != n || steps != 4) {
				t.Errorf("%d keys in %d steps", got, steps)
			}
			if x := list[1]; !x.Found || x.Of.Name != "n" || x.Token == 0 || x.Keys != nil {
				t.Errorf("the named lease: %+v", x)
			}
			if list[2].Found {
				t.Error("found a lease that does not exist")
			}
		})
	}
}

// TestGatherReplacedLease checks that if a lease is replaced between steps, Gather starts over. An
// error ends Gather.
func TestGatherReplacedLease(t *testing.T) {
	l, steps := heldKeys(t, maxGathered+1), 0
	list := []Held{{ID: 1}}
	err := Gather(list, func(f func(*lease.Lessor)) error {
		f(l)
		if steps++; steps == 1 {
			if _, err := l.Revoke(1); err != nil {
				t.Fatal(err)
			}
			grantOne(t, l, 1, "")
			attachTo(t, l, 1, "other")
		}
		return nil
	})
	if err != nil || !slices.Equal(list[0].Keys, []string{"other"}) || steps != 2 {
		t.Errorf("%d keys in %d steps, error %v", len(list[0].Keys), steps, err)
	}
	broken := errors.New("broken")
	err = Gather(list, func(func(*lease.Lessor)) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
