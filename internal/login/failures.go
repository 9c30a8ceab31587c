package login

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// ErrTooManyFailures means that the password was not checked because too many logins have failed.
var ErrTooManyFailures = errors.New(
	"login: too many logins failed; wait a few seconds, then log in again")

// After the allowed number of logins have failed in a row, one more login is allowed to fail in
// each failuresPeriod. A user is allowed userFactor times as many failures as an address, so a
// client at a single address cannot lock a user out.
const (
	// per address, and per user at an address from which the user has logged in
	failuresPeriod = 5 * time.Second
	userFactor     = 10
)

// maxTracked limits the number of entries of each type. The least recently used entry is evicted
// first.
const maxTracked = 1 << 14

// Failures limits how many passwords strangers can try.
//
// A failed login uses up one try for its address and one for its user. If no tries are left, a
// login is rejected before its password is checked, until another try has accrued. A user who has
// logged in from an address has separate tries there, so that strangers cannot keep the user from
// logging in from that address. Successful logins use up no tries.
type Failures struct {
	most int // failures in a row per address; 0 means no limit
	now  func() time.Time

	mu        sync.Mutex // guards the fields below
	users     buckets
	addresses buckets
	known     buckets // by user and address of a successful login
}

// newFailures returns a Failures that allows this many failures in a row per address. If most is 0,
// there is no limit.
func newFailures(most int) *Failures {
	return &Failures{
		most: most, now: time.Now,
		users:     newBuckets(rate.Every(failuresPeriod/userFactor), most*userFactor),
		addresses: newBuckets(rate.Every(failuresPeriod), most),
		known:     newBuckets(rate.Every(failuresPeriod), most),
	}
}

// check returns ErrTooManyFailures if a user's login from an address must wait.
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
	// Do not create a bucket here. A login that has not failed must not evict other buckets.
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

// note records the outcome of a login.
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

// of returns the buckets that are charged for a failed login as user from address.
func (f *Failures) of(user, address string) []*rate.Limiter {
	if b, ok := f.known.Get(pair{user, address}); ok {
		return []*rate.Limiter{b}
	}
	return []*rate.Limiter{f.users.at(pair{user: user}), f.addresses.at(pair{address: address})}
}

// pair is a user, an address, or both.
type pair struct{ user, address string }

// buckets contains a bucket for each of the most recently used pairs.
type buckets struct {
	limit rate.Limit
	burst int
	*simplelru.LRU[pair, *rate.Limiter]
}

func newBuckets(limit rate.Limit, burst int) buckets {
	return buckets{limit, burst, newLRU[pair, *rate.Limiter](maxTracked)}
}

// newLRU returns an LRU cache for up to size keys.
func newLRU[K comparable, V any](size int) *simplelru.LRU[K, V] {
	l, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic("login: " + err.Error()) // the size is a positive constant
	}
	return l
}

// at returns the bucket of a pair. If there is none, it creates a full one.
func (b *buckets) at(of pair) *rate.Limiter {
	l, ok := b.Get(of)
	if !ok {
		l = rate.NewLimiter(b.limit, b.burst)
		b.Add(of, l)
	}
	return l
}
