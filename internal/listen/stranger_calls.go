package listen

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits on strangers. A stranger is a connection on which no caller has logged in.
const (
	fewCalls         = 16   // calls in progress on one connection between members
	maxStrangerCalls = 4096 // calls in progress from all strangers
	// loginTime is the maximum time that verifying a login takes.
	loginTime = time.Second

	// mostSites is the maximum number of addresses whose rates are tracked.
	mostSites = 16_384

	// refusedTime is the timeout for a rejected call.
	refusedTime = time.Second

	// A connection is read more slowly if strangers from its site open more than siteRate calls per
	// second, or if its site resets more than resetRate calls per second. This is because each call
	// costs a goroutine before anything is known about it. The burst that is allowed for resets
	// lets a client end all its calls at once.
	siteRate, siteBurst   = 500, 1000
	resetRate, resetBurst = 5000, 20_000
	// Together, strangers can open strangersRate calls per second. A connection that would have to
	// wait longer than maxDelay because of other connections is closed, so that no flood delays a
	// call by more than maxDelay.
	strangersRate, strangersBurst = 2000, 2000
	maxDelay                      = 5 * time.Second
)

var (
	errStranger = status.Error(codes.ResourceExhausted,
		"leasehold: too many concurrent calls before login; log in, or make fewer concurrent calls")
	errFlood = status.Error(codes.Unavailable, "leasehold: too many calls before login")
)

// Site returns the part of a client's address that identifies its owner. It drops the port. It
// keeps only the first 64 bits of an IPv6 address, because a client with one address in such a
// network can use every address in it. It returns "" for anything else, such as the address of a
// Unix socket.
func Site(address string) string {
	at, err := netip.ParseAddr(address)
	if err != nil {
		with, err := netip.ParseAddrPort(address)
		if err != nil {
			return ""
		}
		at = with.Addr()
	}
	if at = at.Unmap().WithZone(""); at.Is4() {
		return at.String()
	}
	network, _ := at.Prefix(64) // cannot fail, because an IPv6 address has more than 64 bits
	return network.String()
}

// A site tracks the rates of one IPv4 address or one IPv6 network.
type site struct {
	name          string
	opens, resets *rate.Limiter // limit calls opened by strangers, and calls reset by anyone
}

// siteLocked returns the site of an address. A connection without an address counts as its own
// site.
func (all *Requests) siteLocked(address string) *site {
	name := Site(address)
	at, ok := all.sites.Get(name)
	if !ok || name == "" {
		at = &site{
			name:   name,
			opens:  rate.NewLimiter(siteRate, siteBurst),
			resets: rate.NewLimiter(resetRate, resetBurst),
		}
		all.sites.Add(name, at)
	}
	return at
}

// admit counts or rejects a call that comes from a stranger.
func (s *sender) admit(ctx context.Context) error {
	if s.known.Load() {
		return nil
	}
	s.opens++
	all := s.all
	if all.known(ctx) {
		s.markKnown()
		return nil
	}
	all.mu.Lock()
	if len(s.calling) >= all.strangerCalls {
		all.mu.Unlock()
		return errStranger
	}
	var leaves *sender
	if all.strangers.size >= all.mostCalls {
		e := all.strangers.oldest(s.site.name)
		// If the oldest call comes from the same site and might be about to log in, the new call is
		// rejected instead.
		if leaves = e.value.(*sender); e.pile.site == s.site.name && time.Since(e.since) < loginTime {
			leaves = s
		}
	}
	if leaves == s {
		all.mu.Unlock()
		return errFlood
	}
	e := all.strangers.add(s.site.name, s)
	if s.calling == nil {
		s.calling = make(map[*entry]struct{})
	}
	s.calling[e] = struct{}{}
	all.mu.Unlock()
	if leaves != nil {
		leaves.fail(errFlood)
	}
	context.AfterFunc(ctx, func() { s.leave(e) })
	return nil
}

// leave records that a stranger's call has ended.
func (s *sender) leave(e *entry) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.leaveLocked(e)
}

func (s *sender) leaveLocked(e *entry) {
	if _, ok := s.calling[e]; ok {
		delete(s.calling, e)
		s.all.strangers.remove(e)
	}
}

// leaveAllLocked stops counting the sender's calls.
func (s *sender) leaveAllLocked() {
	for e := range s.calling {
		s.leaveLocked(e)
	}
}

// markKnown records that the sender is not a stranger.
func (s *sender) markKnown() {
	if s.known.Swap(true) {
		return
	}
	s.all.mu.Lock()
	s.leaveAllLocked()
	s.all.mu.Unlock()
	if s.isFree() {
		s.mu.Lock()
		s.dropLocked()
		s.mu.Unlock()
	}
}

// senderOf returns the sender of a call, or nil if the call is not counted. For a call made by the
// JSON gateway, it returns the sender of the HTTP request.
func senderOf(ctx context.Context) *sender {
	if in := requestOf(ctx); in != nil {
		return in.sender
	}
	if v := visitOf(ctx); v != nil {
		return v.sender.Load()
	}
	r, _ := remoteOf(ctx)
	return r.sender
}

// countedOf returns the connection of a call, or nil if no Limit counts the connection.
func countedOf(ctx context.Context) *counted {
	r, _ := remoteOf(ctx)
	addr := r.Addr
	if a := accountOf(ctx); a != nil && a.conn != nil {
		addr = a.conn.RemoteAddr()
	}
	c, _ := addr.(caller)
	return c.conn
}

// IsStranger reports whether a call came over a stranger's connection.
func IsStranger(ctx context.Context) bool {
	if s := senderOf(ctx); s != nil && !s.known.Load() {
		return true
	}
	c := countedOf(ctx)
	return c != nil && !c.isKnown.Load()
}

// MarkLoggedIn records that a call comes from a client that has logged in. Its connection is then
// no longer a stranger: it can have as many calls as other connections, and is not closed to make
// room ([Limit.BoundStrangers]).
func MarkLoggedIn(ctx context.Context) {
	s := senderOf(ctx)
	if s != nil && s.marked.Load() {
		return
	}
	if c := countedOf(ctx); c != nil {
		c.markKnown()
	}
	if s != nil {
		s.markKnown()
		s.marked.Store(true)
	}
}

// wait delays the connection according to the number of calls opened and reset since the last wait.
// If it returns an error, the connection ends.
func (s *sender) wait(ctx context.Context) error {
	opens, resets := s.opens, s.resets
	s.opens, s.resets = 0, 0
	if s.known.Load() {
		return s.take(ctx, s.site.resets, resets)
	}
	if err := s.take(ctx, s.site.opens, opens+resets); err != nil {
		return err
	}
	return s.take(ctx, s.all.opens, opens)
}

// take takes n tokens from a limiter, at most one burst at a time, and waits for them. If that
// takes longer than maxDelay because others are already waiting, the connection ends.
func (s *sender) take(ctx context.Context, l *rate.Limiter, n int) error {
	for n > 0 {
		now := time.Now()
		turn := l.ReserveN(now, min(n, l.Burst()))
		delay := turn.DelayFrom(now)
		if delay > maxDelay {
			turn.CancelAt(now)
			s.fail(errFlood)
			return errFlood
		}
		if !s.sleep(ctx, delay) {
			turn.CancelAt(time.Now())
			return errFlood
		}
		n -= l.Burst()
	}
	return nil
}

// sleep waits for d. It reports whether the sender still exists.
func (s *sender) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
	case <-ctx.Done():
	}
	return false
}
