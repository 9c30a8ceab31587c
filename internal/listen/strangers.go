package listen

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of strangers: connections on which no caller has logged in.
const (
	fewCalls      = 16   // calls in progress of one connection between members,
	hostCalls     = 1024 // of all connections of one address,
	strangersMost = 4096 // and of all strangers

	// A connection is read more slowly if it opens more calls a second as a stranger's, or resets
	// more calls: each costs a goroutine before anything about it is known. There is a rate for one
	// connection and one for all. The bursts of resets allow a client to end all its calls at once.
	strangerRate, strangerBurst   = 50, 100
	strangersRate, strangersBurst = 2000, 2000
	resetRate, resetBurst         = 2000, 20_000
	resetsRate, resetsBurst       = 5000, 20_000
)

var errStranger = status.Error(codes.ResourceExhausted,
	"leasehold: too many calls at a time before a login; log in, or make fewer calls at a time")

// admit counts a call if it is a stranger's, or refuses it.
func (s *sender) admit(ctx context.Context) error {
	switch {
	case s.known.Load():
		return nil
	case s.all.known(ctx):
		s.vouched()
		return nil
	}
	s.pace.opens++
	all := s.all
	all.mu.Lock()
	if s.calling >= all.strangerCalls || s.host != "" && all.hosts[s.host] >= hostCalls {
		all.mu.Unlock()
		return errStranger
	}
	var leaves *sender
	if all.strangers >= strangersMost {
		leaves = all.crowdLocked()
	}
	if leaves == s {
		all.mu.Unlock()
		return errStranger
	}
	s.calling++
	all.strangers++
	all.hosts[s.host]++
	all.mu.Unlock()
	if leaves != nil {
		leaves.fail(errStranger)
	}
	context.AfterFunc(ctx, s.leave)
	return nil
}

// crowdLocked returns a sender of the address with the most calls of strangers.
func (all *Requests) crowdLocked() (worst *sender) {
	most := 0
	for s := range all.senders {
		if s.calling == 0 {
			continue
		}
		if n := all.hosts[s.host]; n > most {
			worst, most = s, n
		}
	}
	return worst
}

// leave notes that a call of a stranger has ended.
func (s *sender) leave() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.calling > 0 {
		s.openLocked(-1)
	}
}

// forgetOpenLocked no longer counts the calls of a sender that has left, or is no stranger.
func (s *sender) forgetOpenLocked() { s.openLocked(-s.calling) }

func (s *sender) openLocked(n int) {
	if n == 0 {
		return
	}
	s.calling += n
	s.all.strangers += n
	if s.all.hosts[s.host] += n; s.all.hosts[s.host] == 0 {
		delete(s.all.hosts, s.host)
	}
}

// vouched notes that the sender is no stranger.
func (s *sender) vouched() {
	if s.known.Swap(true) {
		return
	}
	s.all.mu.Lock()
	s.forgetOpenLocked()
	s.all.mu.Unlock()
	if s.isFree() {
		s.mu.Lock()
		s.dropLocked()
		s.mu.Unlock()
	}
}

// IsStranger reports whether a call came over a connection of a stranger.
func IsStranger(ctx context.Context) bool {
	in := requestOf(ctx)
	return in != nil && !in.sender.known.Load()
}

// Vouch notes that a call comes from a client that has logged in, so that its connection is no
// stranger's: it stays ([Limit.CloseStrangers]), and may have as many calls as others.
func Vouch(ctx context.Context) {
	if in := requestOf(ctx); in != nil {
		in.sender.vouched()
	}
	if r, ok := remoteOf(ctx); ok {
		if r.sender != nil {
			r.sender.vouched()
		}
		if c, ok := r.Addr.(caller); ok {
			c.conn.vouched()
		}
	}
}

// pace is how fast a connection is read. It belongs to the goroutine that reads.
type pace struct {
	opens, resets int           // since the last wait
	limit         *rate.Limiter // nil before one is needed
	known         bool          // the limit is not a stranger's
}

// wait waits for as long as the calls that were opened and reset take.
func (s *sender) wait() {
	n, all, known := s.pace.resets, s.all.resets, s.known.Load()
	if !known {
		n, all = n+s.pace.opens, s.all.opens
	}
	s.pace.opens, s.pace.resets = 0, 0
	if n == 0 {
		return
	}
	switch {
	case s.pace.limit != nil && s.pace.known == known:
	case known:
		s.pace.limit = rate.NewLimiter(resetRate, resetBurst)
	default:
		s.pace.limit = rate.NewLimiter(strangerRate, strangerBurst)
	}
	s.pace.known = known
	now := time.Now()
	delay := max(s.pace.limit.ReserveN(now, n).DelayFrom(now), all.ReserveN(now, n).DelayFrom(now))
	if delay <= 0 {
		return
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.done:
	}
}
