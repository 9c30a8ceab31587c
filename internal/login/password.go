package login

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"
)

// MaxPassword is the maximum length of a password in bytes. bcrypt ignores any further bytes.
const MaxPassword = 72

// maxWaiting limits how many logins can wait.
const maxWaiting = 1024

// Errors for callers that set a password or log in.
var (
	// ErrPasswordTooLong means that a new password has more than 72 bytes.
	ErrPasswordTooLong = errors.New("login: a password can be at most 72 bytes long")
	// ErrBusy means that too many logins are already waiting.
	ErrBusy = errors.New("login: too many concurrent logins")
)

// A TooShortError reports that a new password is too short.
type TooShortError struct{ Least int }

// Error returns a message that includes the minimum length.
func (e *TooShortError) Error() string {
	return fmt.Sprintf("login: a password must have at least %d characters (--min-password-length)",
		e.Least)
}

// Passwords computes and checks password hashes.
//
// Hashing is deliberately expensive (50 ms of CPU time by default). At most half of the processors,
// but at least one, compute hashes at any time. The other processors keep renewing leases no matter
// how many clients log in.
type Passwords struct {
	cost     int
	least    int // minimum length of new passwords, in characters
	failures *Failures

	turns   chan struct{} // one element for each running call
	waiting chan struct{} // one element for each running or waiting call

	dummyHash func() []byte // returns the hash used for unknown users
}

// PasswordOptions configures [NewPasswords].
type PasswordOptions struct {
	// Cost is the cost of new hashes. See [CheckCost].
	Cost int
	// Least is the minimum length of new passwords, in characters.
	Least int
	// Failures is how many logins from one address are allowed to fail in a row; 0 means no limit.
	Failures int
}

// NewPasswords returns a Passwords.
func NewPasswords(o PasswordOptions) *Passwords {
	return &Passwords{
		cost:     o.Cost,
		least:    o.Least,
		failures: newFailures(o.Failures),

		turns:   make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		waiting: make(chan struct{}, maxWaiting),
		dummyHash: sync.OnceValue(func() []byte {
			hash, err := bcrypt.GenerateFromPassword([]byte("nobody"), o.Cost)
			if err != nil {
				panic("login: " + err.Error()) // the caller has not checked the cost
			}
			return hash
		}),
	}
}

// CheckCost reports whether bcrypt supports the cost.
func CheckCost(cost int) bool { return cost >= bcrypt.MinCost && cost <= bcrypt.MaxCost }

// Hash returns the hash of a new password.
func (p *Passwords) Hash(ctx context.Context, password string) ([]byte, error) {
	if len(password) > MaxPassword {
		return nil, ErrPasswordTooLong
	}
	if utf8.RuneCountInString(password) < p.least {
		return nil, &TooShortError{p.least}
	}
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	return bcrypt.GenerateFromPassword([]byte(password), p.cost)
}

// Login is an attempt to log in with a password.
type Login struct {
	User, Password string
	// Address identifies where the login comes from. A client must not be able to obtain many
	// addresses.
	Address string
	// Hash is the hash of the user's password, or nil if the user has none.
	Hash []byte
}

// Check reports whether the password of a login matches the hash. Without a hash, it takes just as
// long and returns false, so that the time does not reveal which users exist. Only a password that
// is too long for any user is rejected immediately, so that waiting logins take little memory. If
// the user or the address has to wait, the error is ErrTooManyFailures. See [Failures].
func (p *Passwords) Check(ctx context.Context, l Login) (bool, error) {
	if err := p.failures.check(l.User, l.Address); err != nil {
		return false, err
	}
	if len(l.Password) > MaxPassword { // bcrypt would compare only the first bytes
		p.failures.note(l.User, l.Address, false)
		return false, nil
	}
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave()
	if err := p.failures.check(l.User, l.Address); err != nil {
		return false, err // many logins were admitted at the same time, and have failed
	}
	hash := l.Hash
	if len(hash) == 0 {
		hash = p.dummyHash()
	}
	err := bcrypt.CompareHashAndPassword(hash, []byte(l.Password))
	right := err == nil && len(l.Hash) > 0
	p.failures.note(l.User, l.Address, right)
	return right, nil
}

// enter waits for a turn to compute a hash.
func (p *Passwords) enter(ctx context.Context) error {
	select {
	case p.waiting <- struct{}{}:
	default:
		return ErrBusy
	}
	select {
	case p.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-p.waiting
		return context.Cause(ctx)
	}
}

func (p *Passwords) leave() {
	<-p.turns
	<-p.waiting
}
