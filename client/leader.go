package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	address "leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/fault"
)

// leadership is what a member has said of who leads. Nobody is member 0.
type leadership struct {
	known  bool   // it has said something
	member uint64 // the one that says so
	leader uint64
	urls   []string // of the leader, if it has told them
}

// heed takes in what the member says of who leads, if it says something.
func (l *link) heed(m *pb.Leadership) {
	if m == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lead = leadership{true, m.MemberId, m.LeaderId, m.LeaderClientUrls}
	notify(l.news)
}

// leadership returns what the member has said of who leads.
func (l *link) leadership() leadership {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lead
}

// leads reports whether the member has said that it leads.
func (l *link) leads() bool {
	lead := l.leadership()
	return lead.known && lead.leader == lead.member
}

// elsewhere reports whether a member that the client is not with is said to lead.
func (l leadership) elsewhere() bool { return l.leader != 0 && l.leader != l.member }

const (
	// A client looks for the leader within firstLook after it has learned that another
	// member leads, since all the clients of a member learn of that at once. It takes twice
	// as long after each move, up to lastLook, unless it has stayed for calm. The lead may
	// change faster than it is worth while to follow.
	firstLook = 20 * time.Millisecond
	lastLook  = 30 * time.Second
	calm      = time.Minute
	// lookAgain is for how long a leader that could not be reached is left alone, at first.
	lookAgain = 200 * time.Millisecond
)

// seeker finds the leader while the client is with another member. Only the mux's goroutine
// uses it; a search has one of its own, which ends with the search.
type seeker struct {
	mux   *mux
	due   *time.Timer // when to look
	armed bool        // due will fire
	// searching ends the search that is under way, and found has capacity 1 and gets what it
	// has found, nil for nothing. Both are nil while there is none.
	searching context.CancelFunc
	found     chan *link
	suspects  bool // the search is of suspect

	lead  leadership // who is looked for
	vain  int        // searches for that member in a row that found nothing
	moves int        // in quick succession
	moved time.Time  // the last time
}

func newSeeker(m *mux) *seeker {
	s := &seeker{mux: m, due: time.NewTimer(lastLook)}
	s.rest()
	return s
}

// follow takes in what the member that the client is with says of who leads.
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
		return // that is soon enough, and looks for the leader of then
	}
	if time.Since(s.moved) >= calm {
		s.moves = 0
	}
	s.arm(jittered(min(firstLook<<min(s.moves, 20), lastLook)))
}

func (s *seeker) arm(d time.Duration) {
	s.due.Reset(d)
	s.armed = true
}

// rest looks for nobody, until there is news.
func (s *seeker) rest() {
	s.due.Stop()
	s.armed = false
}

// look begins a search.
func (s *seeker) look(not int) {
	s.armed = false
	places := s.mux.candidates(s.lead, not, s.vain == 0)
	if len(places) == 0 {
		return // none of the endpoints is the leader's
	}
	s.search(places, func(l leadership) bool { return l.leader == l.member })
}

// suspect asks the others whether another member leads by now, if the one that the client is
// with did when it was heard last: it is silent although it was asked something. A machine that
// is gone breaks no stream.
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

// search looks among endpoints for a member that says what is wanted.
func (s *seeker) search(places []int, ok func(leadership) bool) {
	ctx, cancel := context.WithCancel(s.mux.ctx)
	found := make(chan *link, 1)
	s.searching, s.found, s.suspects = cancel, found, false
	s.mux.all.Go(func() {
		l, _, _ := s.mux.race(ctx, places, func(ctx context.Context, place int) (*link, error) {
			return s.mux.connectIf(ctx, place, ok)
		}) // it has logged why not
		found <- l
	})
}

// take takes what a search has found, which may be nil, while the client is with another
// member. It returns the link to move to, nil for none.
func (s *seeker) take(next, now *link) *link {
	s.searching()
	s.searching, s.found = nil, nil
	if s.suspects && next != nil && now.silence() > 0 {
		return next // whichever member leads, that member knows
	}
	if next == nil && !s.suspects {
		s.vain++
	}
	if !now.leadership().elsewhere() {
		if next != nil {
			next.leave() // who leads has changed again, or is about to
		}
		return nil
	}
	if next == nil {
		s.arm(jittered(min(lookAgain<<min(s.vain, 20), lastLook)))
		return nil
	}
	s.rest()
	s.moves, s.moved, s.vain = s.moves+1, time.Now(), 0
	return next
}

// halt ends what is under way.
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

// jittered is a time of about d, so that those that begin together do not stay together.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// identify notes which member an endpoint is, 0 if that is not known any more.
func (m *mux) identify(place int, member uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[place] = member
}

// candidates returns the endpoints that may be the leader's: the one that said so when the
// client was there, or that has the leader's address. If there is none, they are, the first
// time, all but that where the client is; later those that could not be asked then.
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
		a, _ := address.Parse(url) // without a port it is equal to nothing
		b, _ := address.Parse(endpoint)
		return a.Address == b.Address
	})
}

// errNotWanted means that a member does not name the leader that is looked for.
var errNotWanted = errors.New("another leads")

// connectIf is like connect, but leaves a member again unless ok holds for what it says of the
// leader.
func (m *mux) connectIf(
	search context.Context, place int, ok func(leadership) bool,
) (*link, error) {
	ctx, cancel := context.WithTimeout(search, m.cfg.DialTimeout)
	defer cancel()
	l, err := m.connect(ctx, place)
	if err != nil {
		if search.Err() == nil { // else it is not the member's fault
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
