package fsm

import (
	"cmp"
	"slices"
)

// sessionLimits bound what is remembered of sessions. They are the same on every member, since
// apply depends on them. Beyond sessions and bytes, the least recently used session of the user
// that needs room, or of a user with more, is evicted.
type sessionLimits struct {
	sessions int
	answers  int   // of one session: the lowest numbers go
	bytes    int64 // of all answers
	answer   int64 // bytes of one answer; larger ones are not kept
}

var defaultSessionLimits = sessionLimits{
	sessions: 16_384, answers: 4096, bytes: 64 << 20, answer: 1 << 20,
}

// within returns limits under which sessions and their answers take a twelfth of a quota at most,
// or a few kilobytes: what clients that are gone have left must not fill it for ever.
func (l sessionLimits) within(quota int64) sessionLimits {
	if quota <= 0 {
		return l
	}
	l.bytes = min(l.bytes, max(quota/16, 4096))
	l.answer = min(l.answer, l.bytes/4)
	l.sessions = int(min(int64(l.sessions), max(quota/64/sessionBytes, 16)))
	return l
}

// sessions are the sessions that were used last, in the order of the log.
//
// Invariants: byID has those of the ring that begins and ends with root; bytes is the sum
// of theirs; no ID is above last.
type sessions struct {
	limits sessionLimits
	quota  int64  // the cluster's, 0 if there is none
	last   uint64 // the ID given out last
	byID   map[uint64]*session
	root   session // next is the one used last, prev the one used least recently
	bytes  int64
	owners sessionOwners
}

// session is what a client's repetitions are recognized by.
//
// Invariants: answers are in the order of their numbers, none of which is below settled;
// bytes is the sum of their sizes and of the user's name.
type session struct {
	Session
	user    string // who opened it, and nobody else uses it; "" if that was on behalf of nobody
	settled uint64
	answers []answer
	whole   []answer // begins where the memory of answers does
	bytes   int64
	// shared says that a picture has the answers too: they may be added to, not changed.
	shared     bool
	prev, next *session
	// owner has the session in a ring of its own.
	owner        *sessionOwner
	older, newer *session
}

// answer is the result of the command with a number.
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

// open gives out a session of a user, "" for an anonymous caller.
func (l *sessions) open(nonce uint64, user string) Session {
	l.last++
	s := &session{Session: Session{ID: l.last, Nonce: nonce}}
	l.add(s)
	l.sign(s, user)
	limits := l.limits.within(l.quota)
	for len(l.byID) > limits.sessions && l.forgetOne(s, byCount) {
	}
	for user != "" && l.bytes > limits.bytes && l.forgetOne(s, byBytes) {
	}
	return s.Session
}

// forgetOne forgets another session for want of room for s, and reports whether it has.
func (l *sessions) forgetOne(s *session, by measure) bool {
	oldest := l.owners.loser(s.owner, by).root.newer
	if oldest == s && by == byCount { // each owner has one
		oldest = l.root.prev
	}
	if oldest == s {
		return false
	}
	l.remove(oldest)
	return true
}

// sign says whose a session is that has no owner yet.
func (l *sessions) sign(s *session, user string) {
	s.unlink()
	l.owners.count(s.owner, -1, 0)
	s.user, s.owner = user, l.owners.of(user)
	s.toFront()
	l.owners.count(s.owner, 1, 0)
	l.grow(s, int64(len(user)))
}

// grow notes that a session takes more bytes, or less.
func (l *sessions) grow(s *session, bytes int64) {
	s.bytes += bytes
	l.bytes += bytes
	l.owners.count(s.owner, 0, bytes)
}

// add makes a new session known, as the one used last, that is an anonymous caller's.
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

// use returns a session, which is the one used last from now on; nil if it is not known.
func (l *sessions) use(id Session) *session {
	if s := l.root.next; s.Session == id && s != &l.root {
		return s // the common case: a group of one client's commands
	}
	s := l.known(id)
	if s != nil {
		s.prev.next, s.next.prev = s.next, s.prev
		s.unlink()
		l.front(s)
	}
	return s
}

// known returns a session; nil if it is not known.
func (l *sessions) known(id Session) *session {
	if s := l.byID[id.ID]; s != nil && s.Nonce == id.Nonce {
		return s
	}
	return nil
}

// knownTo returns a session of a user; nil if it is not known, or that of another.
func (l *sessions) knownTo(user string, id Session) *session {
	if s := l.known(id); s != nil && s.user == user {
		return s
	}
	return nil
}

// settle forgets the answers to numbers below settled.
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

// drop forgets the first n answers of a session.
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

// own makes a list that nobody else has the answers.
func (s *session) own(answers []answer) {
	s.answers, s.whole, s.shared = answers, answers, false
}

// room sees to it that one more answer can be added. As numbers are settled about as fast as
// others come, there is mostly room at the front.
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

// find returns where the answer to a number is, or would be.
func (s *session) find(number uint64) (i int, found bool) {
	if n := len(s.answers); n == 0 || s.answers[n-1].number < number {
		return n, false
	}
	return slices.BinarySearchFunc(s.answers, number, func(a answer, number uint64) int {
		return cmp.Compare(a.number, number)
	})
}

// answer returns the result of a number that was done before.
func (s *session) answer(number uint64) (_ Result, done bool) {
	i, done := s.find(number)
	if !done {
		return Result{}, false
	}
	return s.answers[i].result, true
}

// keep keeps the result of a number. One that is too large, or that cannot be in a snapshot,
// is forgotten at once, so that a repetition is refused.
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
		if l.forgetOne(s, byBytes) {
			continue
		}
		if len(s.answers) == 0 {
			return // what is left are names
		}
		l.forget(s, 1)
	}
}

// insert puts an answer to where it belongs, mostly the end.
func (l *sessions) insert(s *session, a answer) {
	i, _ := s.find(a.number)
	if s.shared && i < len(s.answers) {
		s.own(slices.Clone(s.answers))
	}
	s.room()
	s.answers = slices.Insert(s.answers, i, a)
	l.grow(s, a.size)
}

// forget drops the first n answers for lack of room: what is below the next can be neither
// answered nor done any more, since it may have been.
func (l *sessions) forget(s *session, n int) {
	s.settled = s.answers[n-1].number + 1
	l.drop(s, n)
}

// sessionsImage is an immutable picture of sessions, the one used least recently first.
type sessionsImage struct {
	last uint64
	list []session
}

// image takes a picture.
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
