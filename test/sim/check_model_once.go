package sim

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/fsm"
)

// modelSession is the state of a client that numbers its writes. It is identified by its nonce,
// which is unique in a run. The model does not limit the number of remembered results, because no
// run reaches the limits.
type modelSession struct {
	nonce, settled uint64
	answers        []modelAnswer // ordered by number; none is below settled
}

// modelAnswer is the result of a numbered write, without its effects.
type modelAnswer struct {
	number uint64
	result modelResult
}

func (a modelAnswer) equal(b modelAnswer) bool {
	return a.number == b.number && a.result.revision == b.result.revision &&
		sameError(a.result.err, b.result.err)
}

func (s modelSession) equal(o modelSession) bool {
	return s.nonce == o.nonce && s.settled == o.settled &&
		slices.EqualFunc(s.answers, o.answers, modelAnswer.equal)
}

func (m *model) session(nonce uint64) (int, bool) {
	return slices.BinarySearchFunc(m.sessions, nonce, func(s modelSession, nonce uint64) int {
		return cmp.Compare(s.nonce, nonce)
	})
}

func (m *model) openSession(c *fsm.OpenSession) {
	if i, ok := m.session(c.Nonce); !ok {
		m.sessions = slices.Insert(slices.Clone(m.sessions), i, modelSession{nonce: c.Nonce})
	}
}

// once performs a command unless its number has been used. Models share sessions, so once replaces
// a session instead of changing it.
func (m *model) once(term uint64, c *fsm.Once) modelResult {
	i, ok := m.session(c.Session.Nonce)
	if !ok {
		return modelResult{err: fsm.ErrSessionNotFound, revision: m.revision}
	}
	s := m.sessions[i]
	s.settled = max(s.settled, c.Settled)
	s.answers = slices.DeleteFunc(slices.Clone(s.answers), func(a modelAnswer) bool {
		return a.number < s.settled
	})
	var r modelResult
	at, done := slices.BinarySearchFunc(s.answers, c.Number, func(a modelAnswer, n uint64) int {
		return cmp.Compare(a.number, n)
	})
	switch {
	case done:
		r = s.answers[at].result
		r.repeated = true
	case c.Number < s.settled:
		r = modelResult{err: fsm.ErrSessionNotFound, revision: m.revision}
	default:
		r = m.apply(term, c.Command)
		answer := r
		answer.steps, answer.events, answer.void = nil, nil, nil
		s.answers = slices.Insert(s.answers, at, modelAnswer{c.Number, answer})
	}
	m.sessions = slices.Clone(m.sessions)
	m.sessions[i] = s
	return r
}
