package login

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// guarded is a Passwords with its own clock. Every user's password is "right".
type guarded struct {
	*Passwords
	clock time.Time
	hash  []byte // hash of "right"
}

func newGuarded(t *testing.T, most int) *guarded {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("right"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{
		Passwords: NewPasswords(PasswordOptions{Cost: bcrypt.MinCost, Failures: most}),
		clock:     time.Unix(1_000_000, 0), hash: hash,
	}
	g.failures.now = func() time.Time { return g.clock }
	return g
}

// logIn attempts a login and returns the outcome.
func (g *guarded) logIn(t *testing.T, user, password, address string) string {
	t.Helper()
	right, err := g.Check(t.Context(), Login{
		User: user, Password: password, Address: address, Hash: g.hash,
	})
	switch {
	case errors.Is(err, ErrTooManyFailures):
		return "limited"
	case err != nil:
		t.Fatal(err)
	case right:
		return "right"
	}
	return "wrong"
}

// TestFailuresOfAnAddress checks that a stranger at one address gets a few attempts, then one every
// five seconds, across all users. Beyond this limit, even the right password is not checked, so the
// answer reveals nothing about it.
func TestFailuresOfAnAddress(t *testing.T) {
	g := newGuarded(t, 3)
	for i, want := range []string{"wrong", "wrong", "wrong", "limited"} {
		if got := g.logIn(t, fmt.Sprint("user", i), "guess", "192.0.2.1"); got != want {
			t.Errorf("try %d: %s", i, got)
		}
	}
	if got := g.logIn(t, "alice", "right", "192.0.2.1"); got != "limited" {
		t.Errorf("the right password: %s", got)
	}
	if got := g.logIn(t, "alice", "right", "192.0.2.2"); got != "right" {
		t.Errorf("from another address: %s", got)
	}
	g.clock = g.clock.Add(failuresPeriod)
	if got := g.logIn(t, "bob", "right", "192.0.2.1"); got != "right" {
		t.Errorf("later: %s", got)
	}
}

// TestSuccessfulLoginsNotLimited checks that successful logins do not count toward the limit. Many
// clients can share an address and a user.
func TestSuccessfulLoginsNotLimited(t *testing.T) {
	g := newGuarded(t, 1)
	for i := range 5 {
		if got := g.logIn(t, "alice", "right", "192.0.2.1"); got != "right" {
			t.Errorf("login %d: %s", i, got)
		}
	}
}

// TestStrangerCannotLockOutUser checks that a stranger at one address cannot lock out a user at
// another address, even one that the user has never logged in from.
func TestStrangerCannotLockOutUser(t *testing.T) {
	g := newGuarded(t, 4)
	for range 1003 {
		g.logIn(t, "alice", "guess", "192.0.2.1")
		g.clock = g.clock.Add(time.Second)
	}
	if got := g.logIn(t, "alice", "right", "192.0.2.2"); got != "right" {
		t.Errorf("from an address of its own: %s", got)
	}
}

// TestFailuresOfAUser checks that guesses from many addresses are limited as well. Meanwhile the
// user can still log in from a known address, and soon after the attack from any address.
func TestFailuresOfAUser(t *testing.T) {
	g := newGuarded(t, 2)
	if got := g.logIn(t, "alice", "right", "192.0.2.1"); got != "right" {
		t.Fatal(got)
	}
	limited := 0
	for i := range 100 {
		if g.logIn(t, "alice", "guess", fmt.Sprintf("2001:db8:0:%x::/64", i)) == "limited" {
			limited++
		}
	}
	if limited != 100-2*userFactor {
		t.Errorf("%d of 100 tries at 100 addresses were limited", limited)
	}
	for at, want := range map[string]string{"192.0.2.1": "right", "192.0.2.2": "limited"} {
		if got := g.logIn(t, "alice", "right", at); got != want {
			t.Errorf("during the attack at %s: %s", at, got)
		}
	}
	g.clock = g.clock.Add(failuresPeriod / userFactor)
	if got := g.logIn(t, "alice", "right", "192.0.2.2"); got != "right" {
		t.Errorf("after the attack: %s", got)
	}
}

// TestFailuresWhereKnown checks that guesses at a user's password from an address where that user
// is known have their own limit.
func TestFailuresWhereKnown(t *testing.T) {
	g := newGuarded(t, 2)
	for i, c := range []struct{ password, want string }{
		{"right", "right"},
		{"guess", "wrong"},
		{"guess", "wrong"},
		{"guess", "limited"},
		{"right", "limited"},
	} {
		if got := g.logIn(t, "alice", c.password, "192.0.2.1"); got != c.want {
			t.Errorf("try %d: %s", i, got)
		}
	}
	if got := g.logIn(t, "bob", "right", "192.0.2.1"); got != "right" {
		t.Errorf("another user there: %s", got)
	}
}

// TestFailuresOfWaiters checks that logins waiting together cannot all bypass the limit. Check
// tests the limit again when a login's turn comes.
func TestFailuresOfWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, 1)
		for range cap(g.turns) {
			if err := g.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		out := make(chan error, 8)
		for range cap(out) {
			go func() {
				_, err := g.Check(t.Context(), Login{User: "alice", Password: "guess", Address: "a"})
				out <- err
			}()
		}
		synctest.Wait() // all logins have passed the first check
		g.leave()
		limited := 0
		for range cap(out) {
			if errors.Is(<-out, ErrTooManyFailures) {
				limited++
			}
		}
		if limited != cap(out)-1 {
			t.Errorf("%d of %d were limited", limited, cap(out))
		}
	})
}

// TestFailuresAreForgotten checks that the number of remembered failures is bounded. The least
// recently used are forgotten first.
func TestFailuresAreForgotten(t *testing.T) {
	f := newFailures(1)
	for i := range maxTracked + 10 {
		f.note(fmt.Sprint("user", i), "a", true)
		f.note(fmt.Sprint("user", i), fmt.Sprint("b", i), false)
	}
	for name, b := range map[string]buckets{
		"users": f.users, "addresses": f.addresses, "known": f.known,
	} {
		if b.Len() != maxTracked {
			t.Errorf("%s: %d", name, b.Len())
		}
	}
	if _, ok := f.known.Get(pair{"user9", "a"}); ok {
		t.Error("the oldest are kept")
	}
	if _, ok := f.known.Get(pair{"user10", "a"}); !ok {
		t.Error("others are not")
	}
}

// TestLimitedAttemptsDoNotEvict checks that a stranger who has no attempts left cannot make the
// member forget a user's failed attempts by trying more user names than it remembers.
func TestLimitedAttemptsDoNotEvict(t *testing.T) {
	g := newGuarded(t, 1)
	for i := range userFactor {
		g.logIn(t, "alice", "guess", fmt.Sprintf("192.0.2.%d", i))
	}
	for i := range maxTracked + 1 {
		if got := g.logIn(t, fmt.Sprint("user", i), "guess", "192.0.2.1"); got != "limited" {
			t.Fatalf("try %d: %s", i, got)
		}
	}
	if got := g.logIn(t, "alice", "guess", "192.0.2.99"); got != "limited" {
		t.Errorf("another guess: %s", got)
	}
}
