package login

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// ErrTooManyFailures means that so many logins have failed that the password is not looked at.
var ErrTooManyFailures = errors.New(
	"login: too many logins failed; wait some seconds, then log in again")

// How many logins may fail in a row, and how soon one more may. A user has many times what an
// address has: so from one address nobody can keep a user from logging in from another.
const (
	failuresPeriod = 5 * time.Second // of an address, and of a user at an address where it is known
	userFactor     = 10
)

// maxTracked bounds what is kept of each kind. What was used longest ago goes first.
const maxTracked = 1 << 14

// Failures bounds the passwords that strangers can try.
//
// A login that fails costs one of its address and one of its user. Callers that have none left are
// refused before their password is looked at, until one is there again. A user that has logged in
// from an address counts there for itself: whatever strangers try, it can log in from there.
// Logins that succeed cost nothing.
type Failures struct {
	most int // in a row, of an address; 0: no bound
	now  func() time.Time

	mu        sync.Mutex // guards what follows
	users     buckets
	addresses buckets
	known     buckets // by user and address, of logins that succeeded
}

// newFailures returns a Failures that lets so many logins in a row fail from an address; 0 is any
// number.
func newFailures(most int) *Failures {
	return &Failures{
		most: most, now: time.Now,
		users:     newBuckets(rate.Every(failuresPeriod/userFactor), most*userFactor),
		addresses: newBuckets(rate.Every(failuresPeriod), most),
		known:     newBuckets(rate.Every(failuresPeriod), most),
	}
}

// check returns ErrTooManyFailures if a login of a user from an address must wait.
func (f *Failures) check(user, address string) error {
	if f.most == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if b, ok := f.known.Get(pair{user, address}); ok {
		return mayFail(b, now)
	}
	// Nothing is made up here: what costs no failure must not push out what others have left.
	if b, ok := f.addresses.Get(pair{address: address}); ok && b.TokensAt(now) < 1 {
		return ErrTooManyFailures
	}
	if b, ok := f.users.Get(pair{user: user}); ok {
		return mayFail(b, now)
	}
	return nil
}

func mayFail(b *rate.Limiter, now time.Time) error {
	if b.TokensAt(now) < 1 {
		return ErrTooManyFailures
	}
	return nil
}

// note takes what came of a login.
func (f *Failures) note(user, address string, right bool) {
	if f.most == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if right {
		f.known.at(pair{user, address})
		return
	}
	now := f.now()
	for _, b := range f.of(user, address) {
		b.AllowN(now, 1)
	}
}

// of returns what a failed login of a user from an address costs one of.
func (f *Failures) of(user, address string) []*rate.Limiter {
	if b, ok := f.known.Get(pair{user, address}); ok {
		return []*rate.Limiter{b}
	}
	return []*rate.Limiter{f.users.at(pair{user: user}), f.addresses.at(pair{address: address})}
}

// pair is a user, an address, or both.
type pair struct{ user, address string }

// buckets has a bucket for each of those that were used last.
type buckets struct {
	limit rate.Limit
	burst int
	*simplelru.LRU[pair, *rate.Limiter]
}

func newBuckets(limit rate.Limit, burst int) buckets {
	return buckets{limit, burst, newLRU[pair, *rate.Limiter](maxTracked)}
}

// newLRU returns the memory of the keys that were used last.
func newLRU[K comparable, V any](size int) *simplelru.LRU[K, V] {
	l, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic("login: " + err.Error()) // the size is a positive constant
	}
	return l
}

// at returns the bucket of somebody, a full one if there was none.
func (b *buckets) at(of pair) *rate.Limiter {
	l, ok := b.Get(of)
	if !ok {
		l = rate.NewLimiter(b.limit, b.burst)
		b.Add(of, l)
	}
	return l
}
