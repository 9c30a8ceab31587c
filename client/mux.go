package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fault"
)

// mux maintains a link to one member at a time, preferably the leader. One goroutine finds members
// and monitors the link.
type mux struct {
	endpoints []endpoint
	dial      dialer
	cfg       settings
	log       *slog.Logger
	// left returns the time until the first lease stops being valid. ok is false if there are no
	// leases.
	left   func() (_ time.Duration, ok bool)
	ctx    context.Context // canceled by close
	cancel context.CancelCauseFunc
	all    sync.WaitGroup
	now    atomic.Pointer[link] // same as link, for goroutines that do not hold mu
	calls  atomic.Int32         // number of calls waiting for a link
	wanted chan struct{}        // capacity 1: another call is waiting, or a follower was added
	count  connectCounts

	mu        sync.Mutex // guards the following fields
	link      *link      // nil if there is none
	changed   chan struct{}
	failure   error    // error from the last attempt to connect
	unfit     error    // why no endpoint is usable; nil if unknown
	members   []uint64 // the last known member behind each endpoint; 0 if unknown
	followers map[follower]struct{}
}

// follower is a long-lived request that moves from link to link until it is closed.
type follower interface {
	// begin starts the request on a link, unless it is already on one.
	begin(l *link)
	// end ends the request.
	end(why error)
}

func newMux(c settings, list []endpoint, dial dialer) *mux {
	m := &mux{
		endpoints: list, dial: dial, cfg: c, log: c.Logger,
		changed: make(chan struct{}), followers: make(map[follower]struct{}),
		wanted:  make(chan struct{}, 1),
		members: make([]uint64, len(list)),
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	return m
}

// start starts looking for a member.
func (m *mux) start() { m.all.Go(m.run) }

// close ends the link and all followers, and waits for them.
func (m *mux) close() {
	m.cancel(ErrClosed)
	m.mu.Lock()
	list := m.followers
	m.followers = nil
	m.mu.Unlock()
	for f := range list {
		f.end(ErrClosed)
	}
	m.all.Wait()
}

// get returns the link, waiting until there is one.
func (m *mux) get(ctx context.Context) (*link, error) {
	if l := m.now.Load(); l != nil && m.ctx.Err() == nil {
		return l, nil
	}
	m.calls.Add(1)
	defer m.calls.Add(-1)
	for {
		m.mu.Lock()
		l, changed, unfit := m.link, m.changed, m.unfit
		m.mu.Unlock()
		switch {
		case m.ctx.Err() != nil:
			return nil, ErrClosed
		case l != nil:
			return l, nil
		case unfit != nil:
			return nil, unfit
		}
		notify(m.wanted)
		select {
		case <-changed:
		case <-m.ctx.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, notConnected(fault.Cause(ctx), m.lastFailure())
		}
	}
}

// lastFailure returns the error from the last attempt to connect, or nil.
func (m *mux) lastFailure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failure
}

// notConnected returns the error for a call that ended before the client was connected.
func notConnected(cause, failure error) error {
	if failure == nil {
		return fmt.Errorf("%w: not connected yet: %w", ErrUnavailable, cause)
	}
	return fmt.Errorf("%w: %w (last attempt to connect: %w)", ErrUnavailable, cause, failure)
}

// current returns the link, or nil if there is none.
func (m *mux) current() *link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.link
}

// run maintains a link until close is called.
func (m *mux) run() {
	s := newSeeker(m)
	w := reports{elsewhere: make(map[int]bool)}
	for next, failures := 0, 0; m.ctx.Err() == nil; {
		l, others, err := m.connectAny(next)
		failures += others
		if w.missed(others, err); err == nil {
			m.count.made.Add(1)
			m.log.Info("connected", "endpoint", m.endpoints[l.place].text)
			l, err = m.stay(l, s)
			m.count.lost.Add(1)
			m.log.Warn("no member", "endpoint", m.endpoints[l.place].text, "why", err)
			next = l.place + 1
			m.spread()
			if l.health().useful {
				failures = 0
			}
			w.linkEnded(l, err)
			failures++
		}
		round := failures / len(m.endpoints)
		m.failed(err, w.unfit(round, len(m.endpoints)))
		switch { // the loop checks the context
		case w.login != nil && m.cfg.User != "":
			_ = m.pause(m.ctx, loginPause)
		case round > 0:
			_ = m.pause(m.ctx, m.cut(backOff(round), leastPause))
		}
	}
}

// loginPause is how long a client waits after its name and password were rejected. Checking a
// password costs a member CPU time, and members limit how many wrong passwords they check.
const loginPause = 5 * time.Second

// mostSpread caps the delay before a client connects if no caller is waiting.
const mostSpread = 3 * time.Second

// spread delays reconnecting for a random part of the time that the leases can spare, if the client
// has nothing to do but renew them. When a member fails, all its clients lose their links at the
// same time. If all of them connected to the other members immediately, none would be served in
// time. The delay ends when a call, a watch or a cache needs a link.
func (m *mux) spread() {
	d := m.slack(mostSpread)
	if d <= 0 {
		return
	}
	t := time.NewTimer(rand.N(d))
	defer t.Stop()
	for m.slack(mostSpread) > 0 {
		select {
		case <-t.C:
			return
		case <-m.wanted:
		case <-m.ctx.Done():
			return
		}
	}
}

// slack returns how long the client can safely go without a link, up to most. It returns 0 if the
// client has no leases, has watches, or has a call waiting.
func (m *mux) slack(most time.Duration) time.Duration {
	left, ok := m.left()
	if !ok {
		return 0
	}
	m.mu.Lock()
	// with a link, the client is looking for the leader
	busy := len(m.followers) > 0 || m.link != nil
	m.mu.Unlock()
	if busy || m.calls.Load() > 0 {
		return 0
	}
	return min(left/3, most)
}

// leastPause is the minimum interval between connection attempts when leases are about to end.
const leastPause = 20 * time.Millisecond

// reports holds what servers have said about themselves since the client last had a useful link.
type reports struct {
	foreign error // error from a server other than Leasehold, or nil
	// elsewhere lists endpoints that belong to other clusters. other is the latest error from such
	// an endpoint.
	elsewhere map[int]bool
	other     error
	login     error // why the last login was rejected; nil if it was not
}

// missed records that endpoints could not be reached. When they come back, they may belong to the
// client's cluster.
func (w *reports) missed(others int, err error) {
	if w.login = nil; errors.Is(err, ErrNotLoggedIn) {
		w.login = err
	}
	if err != nil {
		w.foreign = nil
	}
	if err != nil || others > 0 {
		clear(w.elsewhere)
	}
}

// linkEnded records why a link has ended.
func (w *reports) linkEnded(l *link, why error) {
	var other *otherClusterError
	switch {
	case l.health().useful:
		w.foreign = nil
		clear(w.elsewhere)
	case errors.Is(why, ErrNotLoggedIn):
		w.login = why
	case status.Code(why) == codes.Unimplemented:
		w.foreign = why
	case errors.As(why, &other):
		w.elsewhere[l.place], w.other = true, why
	default:
		delete(w.elsewhere, l.place)
	}
}

// unfit returns the reason why no endpoint is usable, or nil if one may be. An endpoint of another
// cluster remains unusable. The client keeps waiting as long as any endpoint may belong to its own
// cluster.
func (w *reports) unfit(round, endpoints int) error {
	switch {
	case len(w.elsewhere) == endpoints:
		return w.other
	case w.login != nil:
		return w.login
	case w.foreign != nil && round > 0:
		return fmt.Errorf("%w (%w)", ErrNotLeasehold, plain(w.foreign))
	default:
		return nil
	}
}

// failed records why there is no link and why no endpoint is usable. unfit is nil if an endpoint
// may be usable.
func (m *mux) failed(why, unfit error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure, m.unfit = plain(why), unfit
	if unfit != nil {
		m.wakeLocked()
	}
}

// wakeLocked wakes the callers waiting for a link.
func (m *mux) wakeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// unusable returns the reason why no endpoint is usable, or nil if one may be. It also returns a
// channel that is closed when this may have changed.
func (m *mux) unusable() (changed <-chan struct{}, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.link == nil {
		why = m.unfit
	}
	return m.changed, why
}

// stay uses a link until it ends or must be left. It moves to the leader as soon as the leader can
// be reached. It returns the last link it used, and the reason for leaving it.
func (m *mux) stay(l *link, s *seeker) (*link, error) {
	defer s.cancelSearch()
	m.set(l)
	for {
		next, err := m.watch(l, s)
		if next == nil {
			m.lose(l)
			l.leave()
			return l, err
		}
		m.count.moved.Add(1)
		m.log.Info("moved", "endpoint", m.endpoints[next.place].text)
		m.move(l, next)
		l = next
	}
}

// enter adds a follower. From then on, the follower is moved whenever the link changes.
func (m *mux) enter(f follower) (*link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.followers == nil:
		return nil, ErrClosed
	case len(m.followers) >= maxWatches:
		return nil, errTooManyWatches
	}
	m.followers[f] = struct{}{}
	if m.link == nil {
		notify(m.wanted)
	}
	return m.link, nil
}

// exit removes a follower.
func (m *mux) exit(f follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.followers, f)
}

// set sets the link and moves the followers to it.
func (m *mux) set(l *link) {
	m.mu.Lock()
	m.linkLocked(l)
	m.wakeLocked()
	m.mu.Unlock()
	m.lead(l)
}

func (m *mux) linkLocked(l *link) {
	m.link = l
	m.now.Store(l)
}

// lose records that the link has been lost. If the link was useful, lose also clears unfit.
func (m *mux) lose(l *link) {
	useful := l.health().useful
	m.mu.Lock()
	defer m.mu.Unlock()
	m.linkLocked(nil)
	if useful {
		m.unfit = nil
	}
	m.wakeLocked()
}

// move replaces one link with another. There is a link at all times, so no calls fail.
func (m *mux) move(from, to *link) {
	m.mu.Lock()
	m.linkLocked(to)
	m.wakeLocked()
	m.mu.Unlock()
	from.handOver() // after this, no follower is on a link
	m.lead(to)
}

// lead starts all followers' requests on a link.
func (m *mux) lead(l *link) {
	m.mu.Lock()
	list := slices.Collect(maps.Keys(m.followers))
	m.mu.Unlock()
	for _, f := range list {
		f.begin(l)
	}
}

// watch waits until the link has ended or must be left, and returns the reason. If a link to the
// leader is found first, watch returns that link.
func (m *mux) watch(l *link, s *seeker) (next *link, why error) {
	look := time.NewTicker(max(m.cfg.Silence/4, time.Millisecond))
	defer look.Stop()
	s.follow(l)
	for {
		select {
		case <-l.ended:
			return nil, l.why
		case <-l.bad:
			return nil, errors.New("the member rejects all calls or does not respond")
		case <-m.ctx.Done():
			return nil, ErrClosed
		case <-l.news:
			s.follow(l)
		case <-s.due.C:
			s.look(l.place)
		case found := <-s.found:
			if next := s.take(found, l); next != nil {
				return next, nil
			}
		case <-look.C:
			switch silence := l.health().silence(); {
			case silence >= m.cfg.Silence:
				return nil, errors.New("the member does not respond")
			case silence >= m.cfg.Silence/4:
				s.suspect(l)
			}
			if l.idle(m.cfg.Silence) {
				_ = l.submit(newProbe()) // if the link has ended, l.ended reports it
			}
		}
	}
}

// newProbe returns a request that shows whether a member can still serve reads. Without it, a
// client that only watches would not notice that its member no longer can.
func newProbe() *call {
	return &call{
		kind: read, done: func(*pb.Response, error) {},
		request: &pb.Request{Body: &pb.Request_ReadRange{ReadRange: &pb.RangeRequest{
			Key: []byte{0}, CountOnly: true,
		}}},
	}
}
