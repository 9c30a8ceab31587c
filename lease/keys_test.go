package lease

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestKeyMemoryReused checks that the memory for keys depends on how many are attached at a time,
// not on how many have ever been attached.
func TestKeyMemoryReused(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000})
	const many = 3 * pageSize
	for range 3 {
		for i := range many {
			if err := l.Attach(1, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.KeyCount(1); n != many {
			t.Errorf("%d keys, want %d", n, many)
		}
		for i := range many {
			l.Detach(fmt.Sprint(i))
		}
	}
	if l.keys.top != many {
		t.Errorf("%d keys at a time took room for %d", many, l.keys.top)
	}
}

// TestKeysOfMissingLease checks that a missing lease has no keys and accepts none.
func TestKeysOfMissingLease(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000, Bound: true})
	if !l.Loose(1) || l.Loose(2) {
		t.Errorf("loose: lease 1, which has no key, %v; lease 2, which is not there, %v",
			l.Loose(1), l.Loose(2))
	}
	if err := l.Attach(1, "key"); err != nil {
		t.Fatal(err)
	}
	for key := range l.EachKey(2) {
		t.Errorf("lease 2, which is not there, has key %s", key)
	}
	for key := range l.EachKey(1) {
		if key != "key" {
			t.Errorf("lease 1 has key %s", key)
		}
	}
	if at, ok := l.Expiry(2); ok {
		t.Errorf("lease 2, which is not there, expires at %d", at)
	}
	if n := l.KeyCount(2); n != 0 {
		t.Errorf("lease 2, which is not there, has %d keys", n)
	}
	err := l.Reattach(1, maps.All(map[ID]string{2: "key"}))
	if !errors.Is(err, ErrNotFound) || l.LeaseOf("key") != 1 {
		t.Errorf("a key for a lease that is not there: %v, and it is on %d", err, l.LeaseOf("key"))
	}
}

// TestEachKeyAfter checks that keys are listed in reverse order of attachment, starting at any key,
// until the caller stops.
func TestEachKeyAfter(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000})
	for _, key := range []string{"a", "b", "c"} {
		if err := l.Attach(1, key); err != nil {
			t.Fatal(err)
		}
	}
	for after, want := range map[string]string{"": "cba", "c": "ba", "b": "a", "a": ""} {
		if got := strings.Join(slices.Collect(l.EachKeyAfter(1, after)), ""); got != want {
			t.Errorf("after %q come %q, want %q", after, got, want)
		}
	}
	for range l.EachKey(1) {
		break
	}
}

// TestWhose checks that Whose agrees with the lease's terms.
func TestWhose(t *testing.T) {
	l := New(Config{})
	for id, terms := range []Terms{{}, {Name: "n"}, {Principal: "p"}, {Name: "m", Principal: "q"}} {
		terms.ID, terms.TTL = ID(id+1), 5000
		mustGrant(t, l, terms)
		name, principal, ok := l.Whose(terms.ID)
		if name != terms.Name || principal != terms.Principal || !ok {
			t.Errorf("lease %d: %q, %q, %v", terms.ID, name, principal, ok)
		}
	}
	if name, principal, ok := l.Whose(9); name != "" || principal != "" || ok {
		t.Errorf("none: %q, %q, %v", name, principal, ok)
	}
}

// TestReattach attaches the keys of many leases again in random order. It stops at the first key
// whose lease is missing.
func TestReattach(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 128, 20_000} {
		ids := rand.New(rand.NewPCG(1, uint64(n))).Perm(n)
		recovered := func() *Lessor {
			l := New(Config{})
			s := State{LastToken: uint64(n)}
			for i := range n {
				s.Add(&Info{Terms: Terms{ID: ID(i*i + 1), TTL: 1000}, Token: Token(i + 1)})
			}
			if err := l.Recover(s); err != nil {
				t.Fatal(err)
			}
			return l
		}
		keys := func(missing int) iter.Seq2[ID, string] {
			return func(yield func(ID, string) bool) {
				for k, i := range ids {
					id := ID(i*i + 1)
					if k == missing {
						id = -1
					}
					if !yield(id, fmt.Sprint(i)) {
						return
					}
				}
			}
		}
		l := recovered()
		if err := l.Reattach(n, keys(n)); err != nil || l.Attached() != n {
			t.Fatalf("%d keys: %v, %d are attached", n, err, l.Attached())
		}
		for i := range n {
			if id := l.LeaseOf(fmt.Sprint(i)); id != ID(i*i+1) {
				t.Fatalf("%d keys: key %d is on lease %d", n, i, id)
			}
		}
		for _, missing := range []int{0, n / 2, n - 1} {
			if n == 0 {
				break
			}
			l := recovered()
			err := l.Reattach(n, keys(missing))
			if !errors.Is(err, ErrNotFound) || l.Attached() != missing {
				t.Errorf("key %d of %d has no lease: %v, %d are attached", missing, n, err, l.Attached())
			}
		}
	}
}
