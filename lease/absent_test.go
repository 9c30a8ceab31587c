package lease

import (
	"slices"
	"testing"
)

// TestNoSuchLease: what is said of a lease that is not there concerns no other, and does nothing
// where there is no lease at all.
func TestNoSuchLease(t *testing.T) {
	for _, leases := range []ID{0, 1} {
		l := New(Config{Untended: 10})
		l.Promote(0)
		if leases > 0 {
			mustGrant(t, l, Terms{ID: 1, TTL: 1000})
			if _, err := l.Renew(1, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok := l.Expire(Due{ID: 2}); ok {
			t.Error("it expires")
		}
		l.Checkpoint([]Checkpoint{{ID: 2, Remaining: 5}})
		l.Reinstate([]Due{{ID: 2}})
		l.Unreport([]Checkpoint{{ID: 2}})
		l.Abandon(2)
		if _, ok := l.SilentUntil(2); ok {
			t.Error("it is silent")
		}
		if _, ok := l.Expiry(2); ok {
			t.Error("it has an expiry")
		}
		l.Advance(20)
		if silent := l.Silent(10); len(silent) > 0 {
			t.Errorf("silent are %v", silent)
		}
	}
}

// TestFollowerTimesNothing: a follower has no expiry to tell, and takes nothing back that a
// primary has decided.
func TestFollowerTimesNothing(t *testing.T) {
	l := New(Config{})
	info := mustGrant(t, l, Terms{ID: 1, TTL: 1000})
	if _, ok := l.Expiry(1); ok {
		t.Error("it tells an expiry")
	}
	if _, ok := l.NextDue(); ok {
		t.Error("something is due")
	}
	l.Reinstate([]Due{{ID: 1, Token: info.Token}})
	l.Unreport([]Checkpoint{{ID: 1, Token: info.Token}})
	l.Promote(5)
	if at, ok := l.Expiry(1); !ok || at != 1006 {
		t.Errorf("a lease of 1000 ms, promoted at 5, ends at %d, %v", at, ok)
	}
	if at, ok := l.NextDue(); !ok || at > 1006 {
		t.Errorf("the primary looks at it at %d, %v", at, ok)
	}
}

// TestEndsWhileListed: leases that end while a caller goes through them are left out, and the
// caller's function is not called after it has stopped.
func TestEndsWhileListed(t *testing.T) {
	l := New(Config{})
	grant := func() {
		for id := ID(1); id <= 3; id++ {
			mustGrant(t, l, Terms{ID: id, TTL: 1000, Name: string(rune('a' + id))})
		}
	}
	end := func(id ID) {
		if _, err := l.Revoke(id); err != nil {
			t.Fatal(err)
		}
	}
	grant()
	var seen []ID
	for info := range l.Leases() {
		if seen = append(seen, info.ID); info.ID == 1 {
			end(2)
		}
	}
	for info := range l.Named("") {
		if seen = append(seen, info.ID); info.ID == 1 {
			end(3)
		}
	}
	if want := []ID{1, 3, 1}; !slices.Equal(seen, want) {
		t.Errorf("seen were %v, want %v", seen, want)
	}
	end(1)
	grant()
	view := l.View()
	seen = nil
	for info := range l.Leases() {
		seen = append(seen, info.ID)
		break
	}
	for info := range view.All() {
		seen = append(seen, info.ID)
		break
	}
	for info := range view.Named("") {
		seen = append(seen, info.ID)
		break
	}
	if want := []ID{1, 1, 1}; !slices.Equal(seen, want) {
		t.Errorf("seen were %v, want %v", seen, want)
	}
}

// TestPagesThatAreMissing: where nothing was ever written there is nothing, and none is made.
func TestPagesThatAreMissing(t *testing.T) {
	var p paged[int]
	*p.grow(5 * pageSize) = 7
	p.clear(2 * pageSize)
	p.clear(9 * pageSize)
	if p.get(2*pageSize) != 0 || p.get(9*pageSize) != 0 || p.get(5*pageSize) != 7 {
		t.Error("it is not what was written")
	}
	if len(p.pages) != 6 || p.pages[2] != nil {
		t.Errorf("there are %d pages, and the third is %v", len(p.pages), p.pages[2])
	}
}

// TestBytesOfBound: a lease that is there for one key only has more than a plain one.
func TestBytesOfBound(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000, Bound: true})
	if want := int64(leaseBytes + extraBytes); l.Bytes() != want {
		t.Errorf("it takes %d bytes, want %d", l.Bytes(), want)
	}
}

// TestBytes: a lease is counted with its texts, its labels, what else only some have, and its
// keys, and is not counted when it is gone.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		terms Terms
		want  int64
	}{
		{Terms{}, leaseBytes},
		{Terms{Name: "12345", Owner: "678", RequestID: "9"}, leaseBytes + extraBytes + 9},
		{Terms{Secret: Secret{1}}, leaseBytes + extraBytes},
		{Terms{KeepKeys: true}, leaseBytes + extraBytes},
		{Terms{LockDelay: 1}, leaseBytes + extraBytes},
		{
			Terms{Labels: map[string]string{"a": "bc", "def": ""}},
			leaseBytes + extraBytes + 2*labelBytes + 6,
		},
	} {
		l := New(Config{})
		c.terms.ID, c.terms.TTL = 1, 1000
		mustGrant(t, l, c.terms)
		if l.Bytes() != c.want {
			t.Errorf("%+v takes %d bytes, want %d", c.terms, l.Bytes(), c.want)
		}
		for range 2 {
			for _, key := range []string{"k", "l"} {
				if err := l.Attach(1, key); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := c.want + 2*AttachBytes
		if c.terms.KeepKeys {
			want += 2 * KeepBytes
		}
		if l.Bytes() != want {
			t.Errorf("%+v with two keys takes %d bytes, want %d", c.terms, l.Bytes(), want)
		}
		if _, err := l.Revoke(1); err != nil || l.Bytes() != 0 {
			t.Errorf("%d bytes are left, %v", l.Bytes(), err)
		}
	}
}

// TestNameHeldBy: an error that a name is taken says by whom, if that is known.
func TestNameHeldBy(t *testing.T) {
	for owner, want := range map[string]string{
		"":  `lease: name "n" is held by lease 0000000000000007`,
		"o": `lease: name "n" is held by lease 0000000000000007 of owner "o"`,
	} {
		e := &NameError{Name: "n", Holder: Info{Terms: Terms{ID: 7, Owner: owner}}}
		if e.Error() != want {
			t.Errorf("%s, want %s", e, want)
		}
	}
}

// TestRequestAlone: the request is kept of a lease that has nothing else.
func TestRequestAlone(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000, RequestID: "r"})
	if info, _ := l.Lookup(1); info.RequestID != "r" {
		t.Errorf("the request is %q", info.RequestID)
	}
}
