package listen

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of strangers: connections on which no caller has logged in.
const (
	fewCalls      = 16   // calls in progress of one connection between members,
	strangersMost = 4096 // and of all strangers
	// loginTime bounds how long it takes to verify a login.
	loginTime = time.Second

	// mostSites bounds the addresses whose rates are kept.
	mostSites = 16_384

	// refusedTime is how long a rejected call may take.
	refusedTime = time.Second

	// A connection is read more slowly if its site opens more calls per second than this as a
	// stranger, or resets more calls: each costs a goroutine before anything about it is known. The
	// burst of resets allows a client to end all its calls at once.
	siteRate, siteBurst   = 500, 1000
	resetRate, resetBurst = 5000, 20_000
	// All strangers together may open this many. A connection that would have to wait longer than
	// maxDelay for others is closed, so that no flood delays a call for longer.
	strangersRate, strangersBurst = 2000, 2000
	maxDelay                      = 5 * time.Second
)

var (
	errStranger = status.Error(codes.ResourceExhausted,
		"leasehold: too many concurrent calls before a login; log in, or make fewer concurrent calls")
	errFlood = status.Error(codes.Unavailable, "leasehold: too many calls before a login")
)

// Site returns the relevant part of a client's address: no port, and only the first 64 bits of an
// IPv6 address, because a client that has one address of such a network can use all of them. It
// returns "" for other texts, such as the address of a Unix socket.
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
	network, _ := at.Prefix(64) // cannot fail: 64 is at most the length
	return network.String()
}

// A site has the rates of one address, or of one IPv6 network.
type site struct {
	name          string
	opens, resets *rate.Limiter // of calls opened by strangers; of calls reset by others
}

// siteLocked returns the site of an address. A connection without an address counts as a separate
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

// admit counts a call if it is a stranger's, or rejects it.
func (s *sender) admit(ctx context.Context) error {
	if s.known.Load() {
		return nil
	}
	s.opens++
	all := s.all
	if all.known(ctx) {
		s.vouched()
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
		// A call from the same site may be about to log in.
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

// leaveAllLocked stops counting all calls.
func (s *sender) leaveAllLocked() {
	for e := range s.calling {
		s.leaveLocked(e)
	}
}

// vouched records that the sender is not a stranger.
func (s *sender) vouched() {
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

// senderOf returns the sender of a call, nil if it is not counted. A call of the JSON gateway has
// the sender of its request.
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

// countedOf returns the connection of a call, nil if no Limit counts it.
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

// Vouch records that a call comes from a client that has logged in, so that its connection is no
// longer a stranger's: it is not closed to make room ([Limit.BoundStrangers]), and may have as many
// calls as others.
func Vouch(ctx context.Context) {
	if s := senderOf(ctx); s != nil {
		s.vouched()
	}
	if c := countedOf(ctx); c != nil {
		c.vouched()
	}
}

// wait waits for as long as the calls that were opened and reset since the last wait require. An
// error ends the connection.
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

// take takes n tokens of a limiter, at most a burst at a time, and waits for them. If that takes
// longer than maxDelay because others already wait, the connection ends.
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

// sleep waits. It reports whether the sender still exists.
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
