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

// MaxPassword is the longest password in bytes. bcrypt does not look at more.
const MaxPassword = 72

// maxWaiting bounds the logins that wait for their turn.
const maxWaiting = 1024

// These errors are told to callers that set a password or log in.
var (
	// ErrPasswordTooLong means that a new password has more than 72 bytes.
	ErrPasswordTooLong = errors.New("login: a password may have at most 72 bytes")
	// ErrBusy means that too many logins wait already.
	ErrBusy = errors.New("login: too many logins at a time")
)

// A TooShortError refuses a new password.
type TooShortError struct{ Least int }

// Error says how long it must be.
func (e *TooShortError) Error() string {
	return fmt.Sprintf("login: a password needs at least %d characters (--min-password-length)",
		e.Least)
}

// Passwords makes and checks hashes of passwords.
//
// A hash is dear on purpose (50 ms of a processor by default), so only half of the processors, at
// least one, work on hashes at a time. The others go on to renew leases, however many clients
// log in.
type Passwords struct {
	cost     int
	least    int // characters of a new password
	failures *Failures

	turns   chan struct{} // filled by calls that work
	waiting chan struct{} // filled by calls that work or wait

	nobody func() []byte // a hash that stands for a user who does not exist
}

// PasswordOptions is what [NewPasswords] takes.
type PasswordOptions struct {
	// Cost is that of new hashes, see [CheckCost].
	Cost int
	// Least is how many characters a new password needs.
	Least int
	// Failures is how many logins may fail in a row from one address; 0: any number.
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
		nobody: sync.OnceValue(func() []byte {
			hash, err := bcrypt.GenerateFromPassword([]byte("nobody"), o.Cost)
			if err != nil {
				panic("login: " + err.Error()) // the cost was not checked
			}
			return hash
		}),
	}
}

// CheckCost reports whether a cost is one of bcrypt's.
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

// Login is an attempt to log in by a password.
type Login struct {
	User, Password string
	// Address is what counts of where it comes from: who has one must not have many.
	Address string
	// Hash is that of the user's password, nil if there is none.
	Hash []byte
}

// Check reports whether the hash of a login is that of its password. Without a hash it takes as
// long as with one and reports false, so that nobody learns from the time which users there are.
// Only a password that no user can have is refused at once: those that wait for their turn take
// little memory. The error is ErrTooManyFailures when the user or the address must wait, see
// [Failures].
func (p *Passwords) Check(ctx context.Context, l Login) (bool, error) {
	if err := p.failures.check(l.User, l.Address); err != nil {
		return false, err
	}
	if len(l.Password) > MaxPassword { // bcrypt would take it for its first bytes
		p.failures.note(l.User, l.Address, false)
		return false, nil
	}
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave()
	if err := p.failures.check(l.User, l.Address); err != nil {
		return false, err // many were let in together, and failed
	}
	hash := l.Hash
	if len(hash) == 0 {
		hash = p.nobody()
	}
	err := bcrypt.CompareHashAndPassword(hash, []byte(l.Password))
	right := err == nil && len(l.Hash) > 0
	p.failures.note(l.User, l.Address, right)
	return right, nil
}

// enter waits for a turn.
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
