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

// These errors are told to those who set a password or log in.
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
	cost    int
	least   int           // characters of a new password
	turns   chan struct{} // filled by those who work
	waiting chan struct{} // filled by those who work or wait

	nobody func() []byte // a hash that stands for a user who does not exist
}

// NewPasswords returns a Passwords that makes hashes of a cost, see [CheckCost], and takes new
// passwords of at least so many characters.
func NewPasswords(cost, least int) *Passwords {
	return &Passwords{
		cost:    cost,
		least:   least,
		turns:   make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		waiting: make(chan struct{}, maxWaiting),
		nobody: sync.OnceValue(func() []byte {
			hash, err := bcrypt.GenerateFromPassword([]byte("nobody"), cost)
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

// Check reports whether a hash is that of a password. Without a hash it takes as long as with one
// and reports false, so that nobody learns from the time which users there are. Only a password
// that no user can have is refused at once: those that wait for their turn take little memory.
func (p *Passwords) Check(ctx context.Context, hash []byte, password string) (bool, error) {
	if len(password) > MaxPassword { // bcrypt would take it for its first bytes
		return false, nil
	}
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave()
	known := len(hash) > 0
	if !known {
		hash = p.nobody()
	}
	err := bcrypt.CompareHashAndPassword(hash, []byte(password))
	return err == nil && known, nil
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
