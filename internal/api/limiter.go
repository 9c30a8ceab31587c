package api

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// A RateError is an *access.LimitError because of too many requests, and says when to ask again.
type RateError struct {
	access.LimitError
	Retry lease.TTL
}

// Unwrap returns the LimitError.
func (e *RateError) Unwrap() error { return &e.LimitError }

// Limiter counts what principals have at this member, and refuses what is more than they may have.
// Nothing is anybody's while access control is not enabled. It is safe for concurrent use.
type Limiter struct {
	by func() *access.State

	mu sync.Mutex // guards what follows
	of map[string]*shares
	// sweep is with how many principals those are looked for that have nothing.
	sweep int
	// refused counts refusals by principal: of those that were refused first, and with "" of all
	// others.
	refused map[string]*[access.Resources]uint64
	names   int // how many of them are named
	// full are principals that had as much of the replicated state as they may have when a command
	// that counts for them was decided last. Some are forgotten.
	full map[string]struct{}
	// anyFull says that full has some.
	anyFull atomic.Bool
}

// shares is what a principal has at this member.
type shares struct {
	has  [access.Resources]int64
	rate *rate.Limiter // nil as long as there was no limit
}

// minSweep is how many principals are remembered in any case, whether they have anything or not.
const minSweep = 4096

// NewLimiter returns a Limiter that asks by for the newest users and roles, and counts the refusals
// of so many principals apart.
func NewLimiter(by func() *access.State, names int) *Limiter {
	return &Limiter{
		by: by, of: make(map[string]*shares), sweep: minSweep, names: names,
		refused: map[string]*[access.Resources]uint64{"": {}}, full: make(map[string]struct{}),
	}
}

type limiterKey struct{}

// WithLimiter returns a context for calls whose principals l limits.
func WithLimiter(ctx context.Context, l *Limiter) context.Context {
	return context.WithValue(ctx, limiterKey{}, l)
}

func limiterOf(ctx context.Context) *Limiter {
	l, _ := ctx.Value(limiterKey{}).(*Limiter)
	return l
}

// sharesLocked returns what a principal has, to be changed.
func (l *Limiter) sharesLocked(principal string) *shares {
	s := l.of[principal]
	if s != nil {
		return s
	}
	if len(l.of) >= l.sweep {
		for name, s := range l.of {
			if s.idle() {
				delete(l.of, name)
			}
		}
		l.sweep = max(minSweep, 2*len(l.of))
	}
	s = new(shares)
	l.of[principal] = s
	return s
}

// idle reports whether nothing is lost if it is forgotten.
func (s *shares) idle() bool {
	for _, n := range s.has {
		if n != 0 {
			return false
		}
	}
	return s.rate == nil || s.rate.Tokens() >= float64(s.rate.Burst())
}

// take counts one more, unless it is refused.
func (l *Limiter) take(who access.Caller, what access.Resource, times int64) error {
	most := l.by().Limit(who, what) * times
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sharesLocked(who.User)
	if most > 0 && s.has[what] >= most {
		l.refuseLocked(who.User, what)
		return &access.LimitError{
			Principal: who.User, What: what, Limit: most, Used: s.has[what], Asked: 1,
		}
	}
	s.has[what]++
	return nil
}

func (l *Limiter) give(principal string, what access.Resource, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sharesLocked(principal).has[what] -= n
}

// Refused counts a refusal by a limit of what is in the replicated state.
func (l *Limiter) Refused(e *access.LimitError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuseLocked(e.Principal, e.What)
	l.full[e.Principal] = struct{}{}
	for other := range l.full {
		if len(l.full) <= maxFull {
			break
		}
		if other != e.Principal {
			delete(l.full, other)
		}
	}
	l.anyFull.Store(true)
}

// maxFull bounds how many principals are remembered to have reached a limit.
const maxFull = 1024

// IsFull reports whether the last command that counts for a principal was refused by a limit of
// what is in the replicated state: the next is best decided without the log. It is cheap while
// there is none.
func (l *Limiter) IsFull(principal string) bool {
	if !l.anyFull.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.full[principal]
	return ok
}

// HasRoom forgets that a principal was refused.
func (l *Limiter) HasRoom(principal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.full, principal)
	l.anyFull.Store(len(l.full) > 0)
}

// Admit counts a request of so many bytes, and refuses it if it is too large, or one too many. It
// is not asked about renewals: a lease that its holder renews is not lost to a limit. What a
// context has no Limiter for is not refused.
func Admit(ctx context.Context, size func() int) error {
	l := limiterOf(ctx)
	if l == nil || !l.by().Limited() {
		return nil
	}
	return l.admit(CallerOf(ctx), size)
}

func (l *Limiter) admit(who access.Caller, size func() int) error {
	by := l.by()
	most, rps := by.Limit(who, access.RequestBytes), by.Limit(who, access.Rate)
	if who.User == "" || most == 0 && rps == 0 {
		return nil
	}
	n := int64(0)
	if most > 0 {
		n = int64(size()) // not under the lock of all: to walk a large request takes long
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sharesLocked(who.User)
	if n > most {
		l.refuseLocked(who.User, access.RequestBytes)
		return &access.LimitError{
			Principal: who.User, What: access.RequestBytes, Limit: most, Used: n,
		}
	}
	if rps == 0 {
		s.rate = nil
		return nil
	}
	wait := s.wait(rps)
	if wait == 0 {
		return nil
	}
	l.refuseLocked(who.User, access.Rate)
	return &RateError{
		LimitError: access.LimitError{Principal: who.User, What: access.Rate, Limit: rps},
		Retry:      wait,
	}
}

// wait takes a request out of those of now, or returns in how many milliseconds there is one. After
// a pause there may be as many at once as in a second.
func (s *shares) wait(rps int64) lease.TTL {
	burst := int(min(rps, 1<<30))
	switch {
	case s.rate == nil:
		s.rate = rate.NewLimiter(rate.Limit(rps), burst)
	case s.rate.Burst() != burst:
		s.rate.SetLimit(rate.Limit(rps))
		s.rate.SetBurst(burst)
	}
	r := s.rate.Reserve()
	d := r.Delay()
	if d == 0 {
		return 0
	}
	r.Cancel()
	return lease.TTL(max(1, (d+time.Millisecond-1)/time.Millisecond))
}

// Share is what a call has of a resource, which it gives back when it ends. It is safe for
// concurrent use, and nil has nothing.
type Share struct {
	limiter *Limiter
	ctx     context.Context
	what    access.Resource

	mu        sync.Mutex // guards what follows
	principal string     // whose the share is, once it has anything
	n         int64
	closed    bool
}

// ShareOf returns a share of a resource for the call of a context.
func ShareOf(ctx context.Context, what access.Resource) *Share {
	l := limiterOf(ctx)
	if l == nil {
		return nil
	}
	return &Share{limiter: l, ctx: ctx, what: what}
}

// Take takes one more. Its error is an *access.LimitError.
func (s *Share) Take() error { return s.take(1) }

// TakeRenewing is Take for a stream that carries renewals. It is refused at twice the limit only: a
// client that comes back before this member knows that its last connection is dead keeps its
// leases.
func (s *Share) TakeRenewing() error { return s.take(2) }

func (s *Share) take(times int64) error {
	if s == nil || !s.limiter.by().Enabled() {
		return nil
	}
	who := CallerOf(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if who.User == "" || s.closed || s.n > 0 && s.principal != who.User {
		return nil
	}
	if err := s.limiter.take(who, s.what, times); err != nil {
		return err
	}
	s.principal = who.User
	s.n++
	return nil
}

// Give gives one back, if there is any.
func (s *Share) Give() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		s.n--
		s.limiter.give(s.principal, s.what, 1)
	}
}

// Close gives all back.
func (s *Share) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		s.limiter.give(s.principal, s.what, s.n)
	}
	s.n, s.closed = 0, true
}

// Rank adds what principals have at this member.
func (l *Limiter) Rank(r *access.Ranking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.of {
		for what, n := range s.has {
			r.Add(name, access.Resource(what), n)
		}
	}
}

func (l *Limiter) refuseLocked(principal string, what access.Resource) {
	n := l.refused[principal]
	if n == nil {
		if len(l.refused) > l.names {
			principal = ""
		} else {
			l.refused[principal] = new([access.Resources]uint64)
		}
		n = l.refused[principal]
	}
	n[what]++
}

// Refusals returns how often limits of a resource have refused a principal, if it was among the
// first, and with "" how often all others.
func (l *Limiter) Refusals(what access.Resource) map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]uint64, len(l.refused))
	for name, n := range l.refused {
		if n := n[what]; n > 0 || name == "" {
			out[name] = n
		}
	}
	return out
}
