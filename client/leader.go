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

// leadership is a member's report about which member leads. leader is 0 if there is none.
type leadership struct {
	known  bool   // the member has sent a report
	member uint64 // the member that sent the report
	leader uint64
	urls   []string // the leader's addresses, if reported
}

// setLeadership records the member's report about the leader, if it sent one.
func (l *link) setLeadership(m *pb.Leadership) {
	if m == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lead = leadership{true, m.MemberId, m.LeaderId, m.LeaderClientUrls}
	notify(l.news)
}

// leadership returns the member's latest report about the leader.
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

// elsewhere reports whether the leader is a member other than the client's.
func (l leadership) elsewhere() bool { return l.leader != 0 && l.leader != l.member }

const (
	// When a member reports that another member leads, its clients look for the leader within
	// minSearchDelay. The delay is random because all of them receive the report at the same time.
	// It doubles with each move, up to maxSearchDelay, because it is not worth chasing a leadership
	// that keeps changing. It is reset once the client has stayed with a member for calm.
	minSearchDelay = 20 * time.Millisecond
	maxSearchDelay = 30 * time.Second
	calm           = time.Minute
	// minRetryDelay is the first delay before the client retries an unreachable leader.
	minRetryDelay = 200 * time.Millisecond
)

// seeker finds the leader while the client is connected to another member. It belongs to the mux's
// goroutine. Each search runs on its own goroutine, which exits when the search ends.
type seeker struct {
	mux   *mux
	due   *time.Timer // fires when it is time to look
	armed bool        // due is running
	// searching cancels the search in progress. found has capacity 1 and receives the result of the
	// search, or nil if it found no member. Both are nil while no search is running.
	searching context.CancelFunc
	found     chan *link
	suspected bool // the search was started by suspect

	lead     leadership // the leader to find
	failures int        // consecutive failed searches for that leader
	moves    int        // moves in quick succession
	moved    time.Time  // time of the last move
}

func newSeeker(m *mux) *seeker {
	s := &seeker{mux: m, due: time.NewTimer(maxSearchDelay)}
	s.stop()
	return s
}

// follow processes the latest report about the leader from the client's member.
func (s *seeker) follow(l *link) {
	lead := l.leadership()
	if !lead.known {
		return
	}
	s.mux.identify(l.place, lead.member)
	if s.mux.cfg.AnyMember || !lead.elsewhere() {
		s.stop()
		return
	}
	if lead.leader != s.lead.leader {
		s.failures = 0
	}
	s.lead = lead
	if s.armed || s.searching != nil {
		return // the pending search is soon enough, and will use the latest report
	}
	if time.Since(s.moved) >= calm {
		s.moves = 0
	}
	s.arm(backoff.Delay(s.moves, minSearchDelay, maxSearchDelay))
}

func (s *seeker) arm(d time.Duration) {
	s.due.Reset(d)
	s.armed = true
}

// stop stops looking until the next report.
func (s *seeker) stop() {
	s.due.Stop()
	s.armed = false
}

// look starts a search.
func (s *seeker) look(not int) {
	s.armed = false
	places := s.mux.candidates(s.lead, not, s.failures == 0)
	if len(places) == 0 {
		return // none of the endpoints belongs to the leader
	}
	s.search(places, func(l leadership) bool { return l.leader == l.member })
}

// suspect is called when the client's member has stopped responding. If that member's last report
// said that it was the leader, suspect asks the other members whether one of them leads now. It has
// to ask, because a machine that has failed does not close its streams.
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
		s.suspected = true
	}
}

// search looks for a member whose report satisfies ok, among the given endpoints.
func (s *seeker) search(places []int, ok func(leadership) bool) {
	ctx, cancel := context.WithCancel(s.mux.ctx)
	found := make(chan *link, 1)
	s.searching, s.found, s.suspected = cancel, found, false
	s.mux.all.Go(func() {
		l, _, _ := s.mux.race(ctx, places, func(ctx context.Context, place int) (*link, error) {
			return s.mux.connectIf(ctx, place, ok)
		}) // race has logged the reason
		found <- l
	})
}

// take handles the result of a search while the client is connected to another member. next is nil
// if the search found nothing. take returns the link to move to, or nil.
func (s *seeker) take(next, now *link) *link {
	s.searching()
	s.searching, s.found = nil, nil
	if s.suspected && next != nil && now.health().silence() > 0 {
		return next // next's member knows the leader
	}
	if next == nil && !s.suspected {
		s.failures++
	}
	if !now.leadership().elsewhere() {
		if next != nil {
			next.leave() // the leader has changed again or is about to change
		}
		return nil
	}
	if next == nil {
		s.arm(backoff.Delay(s.failures, minRetryDelay, maxSearchDelay))
		return nil
	}
	s.stop()
	s.moves, s.moved, s.failures = s.moves+1, time.Now(), 0
	return next
}

// cancelSearch cancels the search in progress, if any.
func (s *seeker) cancelSearch() {
	s.stop()
	if s.searching == nil {
		return
	}
	s.searching()
	if next := <-s.found; next != nil {
		next.leave()
	}
	s.searching, s.found = nil, nil
}

// identify records which member is behind an endpoint. 0 means that this is no longer known.
func (m *mux) identify(place int, member uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[place] = member
}

// candidates returns the endpoints that may belong to the leader: those known to belong to that
// member or, failing that and only on the first call, those at the leader's addresses. If there are
// none of either kind, the first call returns all endpoints except the client's current one. Later
// calls return those whose member is unknown.
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
		a, _ := address.Parse(url) // if the port is missing, nothing matches
		b, _ := address.Parse(endpoint)
		return a.Address == b.Address
	})
}

// errNotWanted means that a member does not report the expected leader.
var errNotWanted = errors.New("another leads")

// connectIf is like connect, but leaves the member if its report of the leader does not satisfy ok.
func (m *mux) connectIf(
	search context.Context, place int, ok func(leadership) bool,
) (*link, error) {
	ctx, cancel := context.WithTimeout(search, m.cfg.DialTimeout)
	defer cancel()
	l, err := m.connect(ctx, place)
	if err != nil {
		if search.Err() == nil { // otherwise the search has ended; the member is not at fault
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
