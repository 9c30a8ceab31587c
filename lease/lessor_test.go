package lease

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// mustGrant grants a lease and fails the test if the grant is rejected.
func mustGrant(t testing.TB, l *Lessor, terms Terms) Info {
	t.Helper()
	info, err := l.Grant(terms)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestCopies checks that neither arguments nor results share memory with the Lessor.
func TestCopies(t *testing.T) {
	l := New(Config{})
	labels := map[string]string{"k": "v"}
	info := mustGrant(t, l, Terms{ID: 1, TTL: 1000, Labels: labels})
	view := l.View()
	labels["k"] = "changed"
	info.Labels["k"] = "changed"
	found, _ := l.Lookup(1)
	found.Labels["k"] = "changed"
	for i := range view.All() {
		i.Labels["k"] = "changed"
	}
	for i := range view.All() {
		if i.Labels["k"] != "v" {
			t.Errorf("a view's label is %q", i.Labels["k"])
		}
	}
	if again, _ := l.Lookup(1); again.Labels["k"] != "v" {
		t.Errorf("the label is %q", again.Labels["k"])
	}
}

// TestViewStays reads views in other goroutines while the leases change. With -race, it also shows
// that views share no memory with the Lessor.
func TestViewStays(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	l := New(Config{})
	next := ID(1)
	var wg sync.WaitGroup
	for range 20 {
		for range 200 {
			terms := Terms{ID: next, TTL: TTL(1000 + r.IntN(1000))}
			if r.IntN(3) == 0 {
				terms.Owner, terms.Name = "o", fmt.Sprint("n", next)
				terms.Labels = map[string]string{"k": "v"}
				terms.Secret, terms.LockDelay = Secret{1}, 1000
			}
			mustGrant(t, l, terms)
			next++
		}
		want := slices.Collect(l.Leases())
		named := slices.Collect(l.Named("n"))
		view := l.View()
		wg.Go(func() {
			got := slices.Collect(view.All())
			if !slices.EqualFunc(got, want, equalInfo) || view.Len() != len(want) {
				t.Errorf("a view of %d leases does not show the %d there were", len(got), len(want))
			}
			if got := slices.Collect(view.Named("n")); !slices.EqualFunc(got, named, equalInfo) {
				t.Errorf("a view of %d names does not show the %d there were", len(got), len(named))
			}
			if s := view.State(); s.LastToken < uint64(len(want)) || s.Leases != nil {
				t.Errorf("the state of a view is %+v", s)
			}
		})
		for range 300 {
			id := ID(1 + r.Int64N(int64(next)))
			info, ok := l.Lookup(id)
			ttl, token, stands := l.Standing(id)
			if stands != (ok && !info.Delayed) ||
				stands && (ttl != info.TTL || token != info.Token) {
				t.Errorf("lease %+v stands %v with TTL %d, token %d", info, stands, ttl, token)
			}
			switch {
			case !ok:
			case r.IntN(2) == 0:
				if _, err := l.Revoke(id); err != nil {
					t.Error(err)
				}
			case r.IntN(2) == 0:
				l.HandOver(id, info.Token, Terms{Owner: "p", Secret: Secret{2}})
			case r.IntN(2) == 0:
				l.Expire(Due{ID: id, Token: info.Token, Stamp: info.Stamp})
			default:
				l.Checkpoint([]Checkpoint{{ID: id, Token: info.Token, Remaining: TTL(r.IntN(2) * 500)}})
			}
		}
		if err := l.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// TestRecoverRefuses checks that Recover rejects a contradictory state without changing anything.
func TestRecoverRefuses(t *testing.T) {
	good := func(id ID, token Token) Info {
		return Info{Terms: Terms{ID: id, TTL: 1000}, Token: token, Stamp: 1}
	}
	for name, change := range map[string]func(s *State){
		"id zero":            func(s *State) { s.Leases[0].ID = 0 },
		"negative id":        func(s *State) { s.Leases[0].ID = -1 },
		"ttl zero":           func(s *State) { s.Leases[0].TTL = 0 },
		"negative delay":     func(s *State) { s.Leases[0].LockDelay = -1 },
		"no delay runs":      func(s *State) { s.Leases[0].Delayed = true },
		"negative remaining": func(s *State) { s.Leases[1].Remaining = -1 },
		"no token":           func(s *State) { s.Leases[1].Token = 0 },
		"token to come":      func(s *State) { s.Leases[1].Token = 3 },
		"two of an id":       func(s *State) { s.Leases[1].ID = 1 },
		"two of a name":      func(s *State) { s.Leases[0].Name, s.Leases[1].Name = "n", "n" },
		"generation behind":  func(s *State) { s.LastToken = 1 << generationShift },
		"generation too big": func(s *State) { s.Generation = 1 << 16 },
	} {
		t.Run(name, func(t *testing.T) {
			s := State{Leases: []Info{good(1, 1), good(2, 2)}, LastToken: 2}
			l := New(Config{})
			if err := l.Recover(s); err != nil {
				t.Fatalf("the unchanged state: %v", err)
			}
			if err := l.Attach(1, "key"); err != nil {
				t.Fatal(err)
			}
			change(&s)
			if err := l.Recover(s); !errors.Is(err, ErrCorrupt) {
				t.Errorf("error is %v, want ErrCorrupt", err)
			}
			if l.Len() != 2 || l.LeaseOf("key") != 1 {
				t.Errorf("%d leases, key on %d: not as before", l.Len(), l.LeaseOf("key"))
			}
			if err := l.CheckInvariants(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBroken checks that calls panic if only a broken program would make them.
func TestBroken(t *testing.T) {
	for name, f := range map[string]func(l *Lessor){
		"clock goes back": func(l *Lessor) { l.Advance(9) },
		"promoted into the past": func(l *Lessor) {
			l.Promote(9)
		},
		"recover while primary": func(l *Lessor) {
			l.Promote(10)
			_ = l.Recover(State{})
		},
		"tokens used up": func(l *Lessor) {
			if err := l.Recover(State{LastToken: 1<<generationShift - 2}); err != nil {
				t.Error(err)
			}
			for id := range ID(2) { // the first still fits
				mustGrant(t, l, Terms{ID: id + 1, TTL: 1000})
			}
		},
		"tokens used up by draws": func(l *Lessor) {
			if err := l.Recover(State{LastToken: 1<<generationShift - 2}); err != nil {
				t.Error(err)
			}
			for range 2 { // the first still fits
				l.DrawToken()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Config{})
			l.Advance(10)
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f(l)
		})
	}
}

// TestDrawToken checks that drawn tokens and lease tokens form one sequence, even across
// generations (T27).
func TestDrawToken(t *testing.T) {
	l := New(Config{})
	last := mustGrant(t, l, Terms{ID: 1, TTL: 1000}).Token
	rises := func(token Token) {
		t.Helper()
		if token <= last || l.LastToken() != token {
			t.Errorf("token %d after %d, the last is %d", token, last, l.LastToken())
		}
		last = token
	}
	rises(l.DrawToken())
	rises(mustGrant(t, l, Terms{ID: 2, TTL: 1000}).Token)
	rises(l.DrawToken())
	if l.Len() != 2 {
		t.Errorf("%d leases", l.Len())
	}
	for generation := range uint64(2) {
		s := l.View().State()
		s.Generation += generation
		l = New(Config{})
		if err := l.Recover(s); err != nil {
			t.Fatal(err)
		}
		rises(l.DrawToken())
	}
	if last>>generationShift != 1 {
		t.Errorf("token %d is not of generation 1", last)
	}
}

// TestErrors checks that errors carry their data.
func TestErrors(t *testing.T) {
	l := New(Config{MaxKeys: 1})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000, Name: "n", Owner: "o"})
	_, err := l.Grant(Terms{ID: 2, TTL: 0})
	var ttl *TTLError
	if !errors.As(err, &ttl) || *ttl != (TTLError{0, 1, 9_000_000_000_000}) {
		t.Errorf("ttl 0: %v", err)
	}
	_, err = l.Grant(Terms{ID: 2, TTL: 1, Name: "n"})
	var name *NameError
	if !errors.As(err, &name) || name.Holder.ID != 1 || name.Holder.Owner != "o" {
		t.Errorf("name: %v", err)
	}
	if err := l.Attach(1, "a"); err != nil {
		t.Error(err)
	}
	var limit *KeyLimitError
	if err := l.Attach(1, "b"); !errors.As(err, &limit) || *limit != (KeyLimitError{1, 1}) {
		t.Errorf("second key: %v", err)
	}
}

// TestT24 checks that no arithmetic wraps and no lease ends early near the largest instant.
func TestT24(t *testing.T) {
	for _, c := range []struct {
		from Instant
		ttl  TTL
		want Instant
	}{
		{0, 0, 1},
		{5, 10, 16},
		{5, math.MaxInt64 - 7, math.MaxInt64 - 1},
		{5, math.MaxInt64 - 6, math.MaxInt64},
		{5, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64 - 1, 0, math.MaxInt64},
	} {
		if got := c.from.after(c.ttl); got != c.want {
			t.Errorf("%d after %d: %d, want %d", c.ttl, c.from, got, c.want)
		}
	}
	l := New(Config{MaxTTL: math.MaxInt64})
	mustGrant(t, l, Terms{ID: 1, TTL: math.MaxInt64})
	mustGrant(t, l, Terms{ID: 2, TTL: math.MaxInt64})
	l.cfg.SpreadRate = 1
	l.Promote(math.MaxInt64 - 10)
	if err := l.CheckInvariants(); err != nil {
		t.Error(err)
	}
	for _, id := range []ID{1, 2} {
		if ttl, _ := l.Remaining(id); ttl != 9 {
			t.Errorf("lease %d has %d ms until the end of time, want 9", id, ttl)
		}
		if n, err := l.Renew(id, 0); err != nil || n.TTL != math.MaxInt64 {
			t.Errorf("renewal: %+v, %v", n, err)
		}
	}
	l.Advance(math.MaxInt64)
	if due := l.Due(10); len(due) != 2 {
		t.Errorf("%d leases end with time, want 2", len(due))
	}
}

// TestPromoteSpreads checks that a promotion spreads the expiries of many leases. At most
// SpreadRate leases end per second, and the last one ends no later than that rate requires.
func TestPromoteSpreads(t *testing.T) {
	const n, rate = 5000, 1000
	l := New(Config{SpreadRate: rate})
	for i := range ID(n) {
		mustGrant(t, l, Terms{ID: i + 1, TTL: 10_000})
	}
	l.Promote(0)
	// The steps cover whole seconds, such as 1000 to 1999.
	for now := Instant(999); now < 16_000; now += 1000 {
		l.Advance(now)
		l.Checkpoint(l.Silent(n))
		due := l.Due(n)
		if len(due) > rate || now < 10_000 && len(due) > 0 {
			t.Errorf("%d leases end in the second before %d", len(due), now)
		}
		for _, d := range due {
			if _, ok := l.Expire(d); !ok {
				t.Errorf("lease %d did not end", d.ID)
			}
		}
	}
	if l.Len() > 0 {
		t.Errorf("%d leases are still there after %d s", l.Len(), 10+n/rate)
	}
}

// TestSteady checks that renewing, granting and revoking allocate almost nothing.
func TestSteady(t *testing.T) {
	l := New(Config{})
	l.Promote(0)
	for i := range ID(10_000) {
		mustGrant(t, l, Terms{ID: i + 1, TTL: 1000})
	}
	now := Instant(0)
	allocs := testing.AllocsPerRun(20, func() {
		now += 400
		l.Advance(now)
		for i := range ID(10_000) {
			if _, err := l.Renew(i+1, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
	if allocs > 1 {
		t.Errorf("%v allocations for 10,000 renewals, want none", allocs)
	}
	allocs = testing.AllocsPerRun(20, func() {
		for i := range ID(1000) {
			if _, err := l.Revoke(i + 1); err != nil {
				t.Fatal(err)
			}
			mustGrant(t, l, Terms{ID: i + 1, TTL: 1000})
		}
	})
	if allocs > 10 {
		t.Errorf("%v allocations for 1,000 grants and revocations, want hardly any", allocs)
	}
}
