package client

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/backoff"
	address "leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/fault"
)

// leadership is what a member has reported about the leader. ID 0 means no member.
type leadership struct {
	known  bool   // the member has reported something
	member uint64 // the member that reported
	leader uint64
	urls   []string // of the leader, if reported
}

// setLeadership records what the member reports about the leader, if anything.
func (l *link) setLeadership(m *pb.Leadership) {
	if m == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lead = leadership{true, m.MemberId, m.LeaderId, m.LeaderClientUrls}
	notify(l.news)
}

// leadership returns what the member has reported about the leader.
func (l *link) leadership() leadership {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lead
}

// leads reports whether the member has reported that it leads.
func (l *link) leads() bool {
	lead := l.leadership()
	return lead.known && lead.leader == lead.member
}

// elsewhere reports whether the leader is not the client's member.
func (l leadership) elsewhere() bool { return l.leader != 0 && l.leader != l.member }

const (
	// A client looks for the leader within firstLook after it is notified that another member
	// leads. The delay is random, because all clients of a member are notified at once. It doubles
	// with each move, up to lastLook, since the leader may change too often to be worth following,
	// and is reset if the client stayed for calm.
	firstLook = 20 * time.Millisecond
	lastLook  = 30 * time.Second
	calm      = time.Minute
	// lookAgain is the first delay before an unreachable leader is tried again.
	lookAgain = 200 * time.Millisecond
)

// seeker finds the leader while the client is connected to another member. It belongs to the mux's
// goroutine; each search runs on its own goroutine, which ends with it.
type seeker struct {
	mux   *mux
	due   *time.Timer // when to look
	armed bool        // due is set to fire
	// searching cancels the search in progress. found has capacity 1 and receives its result, nil
	// for none. Both are nil without a search.
	searching context.CancelFunc
	found     chan *link
	suspects  bool // the search was started by suspect

	lead  leadership // the leader to find
	vain  int        // consecutive failed searches for it
	moves int        // in quick succession
	moved time.Time  // time of the last move
}

func newSeeker(m *mux) *seeker {
	s := &seeker{mux: m, due: time.NewTimer(lastLook)}
	s.rest()
	return s
}

// follow handles what the client's member reports about the leader.
func (s *seeker) follow(l *link) {
	lead := l.leadership()
	if !lead.known {
		return
	}
	s.mux.identify(l.place, lead.member)
	if s.mux.cfg.AnyMember || !lead.elsewhere() {
		s.rest()
		return
	}
	if lead.leader != s.lead.leader {
		s.vain = 0
	}
	s.lead = lead
	if s.armed || s.searching != nil {
		return // soon enough; it will look for the leader of that time
	}
	if time.Since(s.moved) >= calm {
		s.moves = 0
	}
	s.arm(backoff.Delay(s.moves, firstLook, lastLook))
}

func (s *seeker) arm(d time.Duration) {
	s.due.Reset(d)
	s.armed = true
}

// rest stops looking until there is news.
func (s *seeker) rest() {
	s.due.Stop()
	s.armed = false
}

// look starts a search.
func (s *seeker) look(not int) {
	s.armed = false
	places := s.mux.candidates(s.lead, not, s.vain == 0)
	if len(places) == 0 {
		return // no endpoint is the leader's
	}
	s.search(places, func(l leadership) bool { return l.leader == l.member })
}

// suspect is called when the client's member has stopped responding. If that member led when it was
// last heard from, suspect asks the other members whether one of them leads by now: a machine that
// is gone does not break its streams.
func (s *seeker) suspect(l *link) {
	if s.armed || s.searching != nil || !l.leads() {
		return
	}
	var places []int
	for i := range s.mux.endpoints {
		if i != l.place {
			places = append(places, i)
		}
	}
	if len(places) > 0 {
		silent := l.leadership().member
		s.search(places, func(l leadership) bool { return l.leader != 0 && l.leader != silent })
		s.suspects = true
	}
}

// search looks among endpoints for a member whose report satisfies ok.
func (s *seeker) search(places []int, ok func(leadership) bool) {
	ctx, cancel := context.WithCancel(s.mux.ctx)
	found := make(chan *link, 1)
	s.searching, s.found, s.suspects = cancel, found, false
	s.mux.all.Go(func() {
		l, _, _ := s.mux.race(ctx, places, func(ctx context.Context, place int) (*link, error) {
			return s.mux.connectIf(ctx, place, ok)
		}) // race has logged the reason
		found <- l
	})
}

// take handles the result of a search, which may be nil, while the client is connected to another
// member. It returns the link to move to, or nil.
func (s *seeker) take(next, now *link) *link {
	s.searching()
	s.searching, s.found = nil, nil
	if s.suspects && next != nil && now.silence() > 0 {
		return next // next knows which member leads
	}
	if next == nil && !s.suspects {
		s.vain++
	}
	if !now.leadership().elsewhere() {
		if next != nil {
			next.leave() // the leader has changed again, or is about to
		}
		return nil
	}
	if next == nil {
		s.arm(backoff.Delay(s.vain, lookAgain, lastLook))
		return nil
	}
	s.rest()
	s.moves, s.moved, s.vain = s.moves+1, time.Now(), 0
	return next
}

// halt ends a search in progress.
func (s *seeker) halt() {
	s.rest()
	if s.searching == nil {
		return
	}
	s.searching()
	if next := <-s.found; next != nil {
		next.leave()
	}
	s.searching, s.found = nil, nil
}

// identify records the member behind an endpoint, or 0 if that is no longer known.
func (m *mux) identify(place int, member uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[place] = member
}

// candidates returns the endpoints that may be the leader's: the one that is known to be that
// member, or that has its address. If there is none, the first call returns all endpoints except
// the client's own, and later calls those that could not be reached.
func (m *mux) candidates(lead leadership, not int, first bool) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	matches := []func(int) bool{
		func(i int) bool { return m.members[i] == lead.leader },
		func(i int) bool { return first && lead.at(m.endpoints[i].text) },
		func(i int) bool { return first || m.members[i] == 0 },
	}
	for _, match := range matches {
		var out []int
		for i := range m.endpoints {
			if i != not && match(i) {
				out = append(out, i)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// at reports whether an endpoint is among the leader's addresses.
func (l leadership) at(endpoint string) bool {
	return slices.ContainsFunc(l.urls, func(url string) bool {
		a, _ := address.Parse(url) // without a port nothing matches
		b, _ := address.Parse(endpoint)
		return a.Address == b.Address
	})
}

// errNotWanted means that a member does not report the expected leader.
var errNotWanted = errors.New("another leads")

// connectIf is connect, but leaves the member unless its report of the leader satisfies ok.
func (m *mux) connectIf(
	search context.Context, place int, ok func(leadership) bool,
) (*link, error) {
	ctx, cancel := context.WithTimeout(search, m.cfg.DialTimeout)
	defer cancel()
	l, err := m.connect(ctx, place)
	if err != nil {
		if search.Err() == nil { // else the member is not at fault
			m.identify(place, 0)
		}
		return nil, err
	}
	select {
	case <-l.news:
		lead := l.leadership()
		m.identify(place, lead.member)
		if ok(lead) {
			return l, nil
		}
		err = errNotWanted
	case <-l.ended:
		err = l.why
	case <-ctx.Done():
		err = fault.Cause(ctx)
	}
	l.leave()
	return nil, err
}
