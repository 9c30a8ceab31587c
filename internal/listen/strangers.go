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
	siteCalls     = 1024 // of all strangers of one site,
	strangersMost = 4096 // and of all strangers

	// refusedTime is how long a refused call may take.
	refusedTime = time.Second

	// A connection is read more slowly if its site opens more calls a second as a stranger, or
	// resets more calls: each costs a goroutine before anything about it is known. The burst of
	// resets allows a client to end all its calls at once.
	siteRate, siteBurst   = 500, 1000
	resetRate, resetBurst = 5000, 20_000
	// All strangers together may open so many. A connection that would have to wait for others
	// longer than maxDelay is closed, so that no flood delays anyone for longer.
	strangersRate, strangersBurst = 2000, 2000
	maxDelay                      = 5 * time.Second
)

var (
	errStranger = status.Error(codes.ResourceExhausted,
		"leasehold: too many calls at a time before a login; log in, or make fewer calls at a time")
	errFlood = status.Error(codes.Unavailable, "leasehold: too many calls before a login")
)

// Site returns what counts of the address of a client: no port, and of an IPv6 address the first 64
// bits, as everyone who has one of such addresses has all. It returns "" for other texts, such as
// that of a Unix socket.
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
	network, _ := at.Prefix(64) // it cannot fail: 64 is at most the length
	return network.String()
}

// A site is the connections from one address, or from one IPv6 network. Its fields are guarded by
// Requests.mu, but limiters are safe for concurrent use.
type site struct {
	conns         int           // connections, and requests of HTTP
	calls         int           // calls of strangers in progress
	opens, resets *rate.Limiter // of calls, in strangers; of calls, in others
}

func newSite() *site {
	return &site{
		opens:  rate.NewLimiter(siteRate, siteBurst),
		resets: rate.NewLimiter(resetRate, resetBurst),
	}
}

// siteLocked returns the site of an address. A connection without an address is a site of its own.
func (all *Requests) siteLocked(address string) *site {
	name := Site(address)
	if name == "" {
		return newSite()
	}
	if len(all.sites) > 2*all.busySites+64 {
		all.forgetSitesLocked()
	}
	at := all.sites[name]
	if at == nil {
		at = newSite()
		all.sites[name] = at
	}
	return at
}

// forgetSitesLocked forgets sites that are as new ones.
func (all *Requests) forgetSitesLocked() {
	for name, at := range all.sites {
		if at.conns == 0 && at.opens.Tokens() >= siteBurst && at.resets.Tokens() >= resetBurst {
			delete(all.sites, name)
		}
	}
	all.busySites = len(all.sites)
}

// admit counts a call if it is a stranger's, or refuses it.
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
	if s.calling >= all.strangerCalls || s.site.calls >= siteCalls {
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
	s.countLocked(1)
	all.mu.Unlock()
	if leaves != nil {
		leaves.fail(errStranger)
	}
	context.AfterFunc(ctx, s.leave)
	return nil
}

// crowdLocked returns a sender of the site with the most calls of strangers.
func (all *Requests) crowdLocked() (worst *sender) {
	for s := range all.senders {
		if s.calling > 0 && (worst == nil || s.site.calls > worst.site.calls) {
			worst = s
		}
	}
	return worst
}

// leave notes that a call of a stranger has ended.
func (s *sender) leave() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.calling > 0 {
		s.countLocked(-1)
	}
}

// countLocked counts calls of a stranger in progress.
func (s *sender) countLocked(n int) {
	s.calling += n
	s.site.calls += n
	s.all.strangers += n
}

// vouched notes that the sender is no stranger.
func (s *sender) vouched() {
	if s.known.Swap(true) {
		return
	}
	s.all.mu.Lock()
	s.countLocked(-s.calling)
	s.all.mu.Unlock()
	if s.isFree() {
		s.mu.Lock()
		s.dropLocked()
		s.mu.Unlock()
	}
}

// senderOf returns the sender of a call, nil if it is not counted. A call of the JSON gateway has
// that of its request.
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

// IsStranger reports whether a call came over a connection of a stranger.
func IsStranger(ctx context.Context) bool {
	if s := senderOf(ctx); s != nil && !s.known.Load() {
		return true
	}
	c := countedOf(ctx)
	return c != nil && !c.known.Load()
}

// Vouch notes that a call comes from a client that has logged in, so that its connection is no
// stranger's: it stays ([Limit.BoundStrangers]), and may have as many calls as others.
func Vouch(ctx context.Context) {
	if s := senderOf(ctx); s != nil {
		s.vouched()
	}
	if c := countedOf(ctx); c != nil {
		c.vouched()
	}
}

// wait waits for as long as the calls that were opened and reset since the last time take. An error
// ends the connection.
func (s *sender) wait() error {
	known := s.known.Load()
	n, own := s.resets, s.site.resets
	if !known {
		n, own = n+s.opens, s.site.opens
	}
	s.opens, s.resets = 0, 0
	if err := s.take(own, n); err != nil || known {
		return err
	}
	return s.take(s.all.opens, n)
}

// take takes n tokens of a limiter, at most a burst at a time, and waits for them. If that takes
// longer than maxDelay because others wait already, the connection is ended.
func (s *sender) take(l *rate.Limiter, n int) error {
	for n > 0 {
		now := time.Now()
		turn := l.ReserveN(now, min(n, l.Burst()))
		delay := turn.DelayFrom(now)
		if delay > maxDelay {
			turn.CancelAt(now)
			s.fail(errFlood)
			return errFlood
		}
		if !s.sleep(delay) {
			turn.CancelAt(time.Now())
			return errFlood
		}
		n -= l.Burst()
	}
	return nil
}

// sleep waits. It reports whether the sender is still there.
func (s *sender) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
		return false
	}
}
