package login

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/crypto/bcrypt"
)

func check(t *testing.T, p *Passwords, hash []byte, password string, want bool) {
	t.Helper()
	ok, err := p.Check(t.Context(), Login{Hash: hash, Password: password})
	if ok != want || err != nil {
		t.Errorf("password %q: %v, %v", password, ok, err)
	}
}

// TestPasswords checks right and wrong passwords, including pairs that bcrypt alone would confuse.
func TestPasswords(t *testing.T) {
	p := NewPasswords(PasswordOptions{Cost: bcrypt.MinCost})
	for _, password := range []string{"", "secret", strings.Repeat("x", 72), "a\x00b"} {
		hash, err := p.Hash(t.Context(), password)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(hash), "secret") {
			t.Error("the hash has the password in it")
		}
		check(t, p, hash, password, true)
		check(t, p, hash, password+"y", false)
		check(t, p, hash, "other", false)
	}
	if _, err := p.Hash(t.Context(), strings.Repeat("x", 73)); !errors.Is(err, ErrPasswordTooLong) {
		t.Errorf("a password of 73 bytes: %v", err)
	}
	// Even the password of the substitute hash for unknown users is rejected.
	check(t, p, nil, "nobody", false)
	check(t, p, nil, "", false)
	if cost, err := bcrypt.Cost(p.dummyHash()); err != nil || cost != bcrypt.MinCost {
		t.Errorf("the hash of nobody costs %d, %v", cost, err)
	}
}

// TestShortPasswords covers etcd's CVE-2020-15115, which allowed one-character passwords. A
// character counts as one, no matter how many bytes it takes.
func TestShortPasswords(t *testing.T) {
	p := NewPasswords(PasswordOptions{Cost: bcrypt.MinCost, Least: 8})
	for _, password := range []string{"", "1234567", "äöüäöüä"} {
		_, err := p.Hash(t.Context(), password)
		if e := new(TooShortError); !errors.As(err, &e) || e.Least != 8 {
			t.Errorf("%q: %v", password, err)
		}
	}
	for _, password := range []string{"12345678", "äöüäöüäö"} {
		if _, err := p.Hash(t.Context(), password); err != nil {
			t.Errorf("%q: %v", password, err)
		}
	}
	// A user with an existing short password can still log in.
	hash, err := bcrypt.GenerateFromPassword([]byte("x"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	check(t, p, hash, "x", true)
}

// TestPasswordsTakeTurns fills all turns and then the entire wait queue.
func TestPasswordsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPasswords(PasswordOptions{Cost: bcrypt.MinCost})
		for range cap(p.turns) {
			if err := p.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, maxWaiting)
		for range maxWaiting - cap(p.turns) {
			go func() {
				_, err := p.Check(ctx, Login{Password: "x"})
				gone <- err
			}()
		}
		synctest.Wait()
		if _, err := p.Hash(t.Context(), "x"); !errors.Is(err, ErrBusy) {
			t.Errorf("one too many: %v", err)
		}
		// A password too long to be valid is rejected without waiting.
		check(t, p, nil, strings.Repeat("x", MaxPassword+1), false)
		cancel()
		for range maxWaiting - cap(p.turns) {
			if err := <-gone; !errors.Is(err, context.Canceled) {
				t.Errorf("a login that was given up: %v", err)
			}
		}
		p.leave()
		check(t, p, nil, "x", false)
	})
}

// TestCheckCost checks which costs bcrypt accepts.
func TestCheckCost(t *testing.T) {
	for cost, want := range map[int]bool{3: false, 4: true, 10: true, 31: true, 32: false, -1: false} {
		if CheckCost(cost) != want {
			t.Errorf("cost %d: %v", cost, !want)
		}
	}
}
