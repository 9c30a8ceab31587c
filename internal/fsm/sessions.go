package fsm

import (
	"cmp"
	"slices"
)

// sessionLimits bounds the sessions and stored results that are kept. Apply depends on the limits,
// so they are the same on every member. If the limit on sessions or bytes is exceeded, the least
// recently used session of one user is evicted. That user is either the one that needs room or one
// that has more.
type sessionLimits struct {
	sessions int
	answers  int   // per session: the lowest numbers are dropped first
	bytes    int64 // of all stored results
	answer   int64 // bytes per result; larger results are not stored
}

var defaultSessionLimits = sessionLimits{
	sessions: 16_384, answers: 4096, bytes: 64 << 20, answer: 1 << 20,
}

// within returns limits under which sessions and their results take at most a twelfth of a quota,
// or a few kilobytes if that is more. Otherwise abandoned sessions could fill the quota.
func (l sessionLimits) within(quota int64) sessionLimits {
	if quota <= 0 {
		return l
	}
	l.bytes = min(l.bytes, max(quota/16, 4096))
	l.answer = min(l.answer, l.bytes/4)
	l.sessions = int(min(int64(l.sessions), max(quota/64/sessionBytes, 16)))
	return l
}

// sessions contains the most recently used sessions, in log order.
//
// Invariants: byID contains exactly the sessions of the ring at root; bytes is the sum of their
// bytes; no ID exceeds last.
type sessions struct {
	limits sessionLimits
	quota  int64  // the cluster's quota, or 0 for none
	last   uint64 // the last ID assigned
	byID   map[uint64]*session
	// root.next is the most recently used session, and root.prev the least recently used
	root   session
	bytes  int64
	owners sessionOwners
}

// session is used to recognize a client's repeated commands.
//
// Invariants: answers are ordered by number, and no number is below settled; bytes is the sum of
// their sizes plus the length of the user's name.
type session struct {
	Session
	user    string // the only user that may use the session, or "" for an anonymous caller
	settled uint64
	answers []answer
	whole   []answer // begins where the memory allocated for answers begins
	bytes   int64
	// shared is true while an image refers to the answers. In that case, they can be appended to,
	// but not changed.
	shared     bool
	prev, next *session
	// owner has a second ring of its sessions, linked through older and newer.
	owner        *sessionOwner
	older, newer *session
}

// answer is the stored result of the command with this number.
type answer struct {
	number uint64
	result Result
	size   int64
}

func newSessions() *sessions {
	s := &sessions{limits: defaultSessionLimits, byID: make(map[uint64]*session)}
	s.root.prev, s.root.next = &s.root, &s.root
	return s
}

// open opens a session for a user, or for an anonymous caller if user is "".
func (l *sessions) open(nonce uint64, user string) Session {
	l.last++
	s := &session{Session: Session{ID: l.last, Nonce: nonce}}
	l.add(s)
	l.setUser(s, user)
	limits := l.limits.within(l.quota)
	for len(l.byID) > limits.sessions && l.evict(s, byCount) {
	}
	for user != "" && l.bytes > limits.bytes && l.evict(s, byBytes) {
	}
	return s.Session
}

// evict evicts another session to make room for s, and reports whether it found one.
func (l *sessions) evict(s *session, by measure) bool {
	oldest := l.owners.victim(s.owner, by).root.newer
	if oldest == s && by == byCount { // each owner has only one session
		oldest = l.root.prev
	}
	if oldest == s {
		return false
	}
	l.remove(oldest)
	return true
}

// setUser sets the user of a session that does not have one yet.
func (l *sessions) setUser(s *session, user string) {
	s.unlink()
	l.owners.count(s.owner, -1, 0)
	s.user, s.owner = user, l.owners.of(user)
	s.toFront()
	l.owners.count(s.owner, 1, 0)
	l.grow(s, int64(len(user)))
}

// grow adds to the size of a session. bytes can be negative.
func (l *sessions) grow(s *session, bytes int64) {
	s.bytes += bytes
	l.bytes += bytes
	l.owners.count(s.owner, 0, bytes)
}

// add adds a session as the most recently used one. It belongs to an anonymous caller: see setUser.
func (l *sessions) add(s *session) {
	l.byID[s.ID] = s
	s.owner = l.owners.of("")
	l.front(s)
	l.owners.count(s.owner, 1, 0)
}

func (l *sessions) front(s *session) {
	s.prev, s.next = &l.root, l.root.next
	s.prev.next, s.next.prev = s, s
	s.toFront()
}

func (l *sessions) remove(s *session) {
	s.prev.next, s.next.prev = s.next, s.prev
	s.unlink()
	delete(l.byID, s.ID)
	l.bytes -= s.bytes
	l.owners.count(s.owner, -1, -s.bytes)
}

// use returns a session and makes it the most recently used one. It returns nil if the session is
// unknown.
func (l *sessions) use(id Session) *session {
	if s := l.root.next; s.Session == id && s != &l.root {
		return s // common case: several commands of one client in a row
	}
	s := l.known(id)
	if s != nil {
		s.prev.next, s.next.prev = s.next, s.prev
		s.unlink()
		l.front(s)
	}
	return s
}

// known returns a session, or nil if it is unknown.
func (l *sessions) known(id Session) *session {
	if s := l.byID[id.ID]; s != nil && s.Nonce == id.Nonce {
		return s
	}
	return nil
}

// knownTo returns a session of a user. It returns nil if the session is unknown or belongs to
// another user.
func (l *sessions) knownTo(user string, id Session) *session {
	if s := l.known(id); s != nil && s.user == user {
		return s
	}
	return nil
}

// settle drops the results for numbers below settled.
func (l *sessions) settle(s *session, settled uint64) {
	if settled <= s.settled {
		return
	}
	s.settled = settled
	n := 0
	for n < len(s.answers) && s.answers[n].number < settled {
		n++
	}
	l.drop(s, n)
}

// drop drops the first n results of a session.
func (l *sessions) drop(s *session, n int) {
	if n == 0 {
		return
	}
	var bytes int64
	for i := range s.answers[:n] {
		bytes += s.answers[i].size
	}
	l.grow(s, -bytes)
	if s.shared {
		s.own(slices.Clone(s.answers[n:]))
		return
	}
	clear(s.answers[:n])
	s.answers = s.answers[n:]
}

// own replaces the answers with a slice that is not shared.
func (s *session) own(answers []answer) {
	s.answers, s.whole, s.shared = answers, answers, false
}

// room makes room for one more result. Clients acknowledge results about as fast as they send
// commands, so there is usually room at the front.
func (s *session) room() {
	old := s.answers
	n := len(old)
	switch {
	case n < cap(old):
	case !s.shared && cap(s.whole) >= max(1, 2*n):
		s.answers = s.whole[:n]
		copy(s.answers, old)
		clear(old)
	default:
		s.own(append(make([]answer, 0, max(8, 2*n)), old...))
	}
}

// find returns the position of the result for a number, or where to insert it.
func (s *session) find(number uint64) (i int, found bool) {
	if n := len(s.answers); n == 0 || s.answers[n-1].number < number {
		return n, false
	}
	return slices.BinarySearchFunc(s.answers, number, func(a answer, number uint64) int {
		return cmp.Compare(a.number, number)
	})
}

// answer returns the result stored for a number.
func (s *session) answer(number uint64) (_ Result, done bool) {
	i, done := s.find(number)
	if !done {
		return Result{}, false
	}
	return s.answers[i].result, true
}

// keep stores the result for a number. If the result is too large, or cannot be encoded in a
// snapshot, it stores ErrSessionNotFound instead, so that a repeated command is rejected.
func (l *sessions) keep(s *session, number uint64, r Result) {
	size, limits := resultSize(&r), l.limits.within(l.quota)
	if size > limits.answer || !storable(r.Err) {
		r = Result{Revision: r.Revision, Err: ErrSessionNotFound}
		size = resultSize(&r)
	}
	l.insert(s, answer{number, r, size})
	if n := len(s.answers) - limits.answers; n > 0 {
		l.forget(s, n)
	}
	for l.bytes > limits.bytes {
		if l.evict(s, byBytes) {
			continue
		}
		if len(s.answers) == 0 {
			return // only user names are left
		}
		l.forget(s, 1)
	}
}

// insert inserts a result in order, usually at the end.
func (l *sessions) insert(s *session, a answer) {
	i, _ := s.find(a.number)
	if s.shared && i < len(s.answers) {
		s.own(slices.Clone(s.answers))
	}
	s.room()
	s.answers = slices.Insert(s.answers, i, a)
	l.grow(s, a.size)
}

// forget drops the first n results to make room. From then on, numbers up to the last one dropped
// are rejected, because their commands may have been applied.
func (l *sessions) forget(s *session, n int) {
	s.settled = s.answers[n-1].number + 1
	l.drop(s, n)
}

// sessionsImage is an immutable view of sessions, least recently used first.
type sessionsImage struct {
	last uint64
	list []session
}

// image returns an immutable view of the sessions.
func (l *sessions) image() sessionsImage {
	im := sessionsImage{last: l.last, list: make([]session, 0, len(l.byID))}
	for s := l.root.prev; s != &l.root; s = s.prev {
		s.shared = true
		im.list = append(im.list, session{
			Session: s.Session, user: s.user, settled: s.settled, answers: slices.Clip(s.answers),
		})
	}
	return im
}
