package fsm

import (
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// Session names a client whose writes have numbers, so that each takes effect once however
// often it is sent.
type Session struct {
	// ID was given out by OpenSession and is never given out again, but perhaps after a
	// backup was restored.
	ID uint64
	// Nonce was drawn by the client: another client that was given the same ID, in another
	// generation of the cluster, has another.
	Nonce uint64
}

// OpenSession gives out a Session, which is the result. It is forgotten when many others
// were used after it.
type OpenSession struct{ Nonce uint64 }

// Once does Command, which is a Put, DeleteRange, Txn, Grant, Revoke, ChangeTTL, HandOver or
// Resume, unless the session has done one with its number before: then the result is that of
// the first time, marked as Repeated. A refusal for want of room is not kept: see notNow. If the
// session is not known, or has forgotten the number, or used it for a command of another form,
// nothing is done and the result is ErrSessionNotFound.
type Once struct {
	Session Session
	// Number is chosen by the client, from 1, another for each command.
	Number uint64
	// Settled says that nobody waits for the results of numbers below it, nor ever
	// will. They are forgotten; one of them that arrives late is not done.
	Settled uint64
	Command Command
}

func (*OpenSession) kind() kind { return kindOpenSession }
func (*Once) kind() kind        { return kindOnce }

// Inner returns the command that c asks for: that of a By and of a Once, else c itself. Code that
// looks into commands looks into this one.
func Inner(c Command) Command {
	_, c = unwrap(c)
	if o, ok := c.(*Once); ok {
		return o.Command
	}
	return c
}

// repeatable reports whether a command of this kind may be that of a Once: its results can
// be stored.
func (k kind) repeatable() bool {
	switch k {
	case kindPut, kindDeleteRange, kindTxn, kindGrant, kindRevoke, kindChangeTTL, kindHandOver,
		kindResume:
		return true
	default:
		return false
	}
}

// applyOnce applies the command of a user, "" if it is on behalf of nobody.
func (m *Machine) applyOnce(user string, c *Once) Result {
	s := m.sessions.use(c.Session)
	if s != nil && s.user != user {
		return Result{Revision: m.store.Revision(), Err: ErrSessionNotFound}
	}
	r, what := s.outcome(c)
	if s != nil {
		m.sessions.settle(s, c.Settled)
	}
	switch what {
	case repeated:
		return r
	case refused:
		return Result{Revision: m.store.Revision(), Err: ErrSessionNotFound}
	}
	r = m.apply(user, c.Command)
	r.Revision = m.store.Revision()
	if !notNow(r.Err) {
		m.sessions.keep(s, c.Number, r)
	}
	return r
}

// MayBeRepeated reports whether a command says how to tell whether it was done before: by its
// number, or by the request that it is.
func MayBeRepeated(c Command) bool {
	_, c = unwrap(c)
	_, numbered := c.(*Once)
	return numbered || repeatableOf(c) != nil
}

// Repeated returns the result of a command that was done before, as a repetition has it, and
// whether it was: if it [MayBeRepeated]. It changes nothing, so it does not renew the lease of a
// grant.
func (m *Machine) Repeated(c Command) (Result, bool) {
	who, inner := unwrap(c)
	if m.denied(c) != nil {
		return Result{}, false
	}
	once, ok := inner.(*Once)
	if !ok {
		return m.granted(inner)
	}
	r, what := m.sessions.knownTo(who.User, once.Session).outcome(once)
	return r, what == repeated
}

// outcome is what becomes of a Once that is applied next.
type outcome uint8

const (
	refused  outcome = iota // nothing is done: see Once
	repeated                // it has the result of the first time
	isNew                   // it is done
)

// outcome says what becomes of a command of the session, which is nil if it is not known, with the
// result if it is repeated. It changes nothing.
func (s *session) outcome(c *Once) (Result, outcome) {
	if s == nil || c.Number < max(s.settled, c.Settled) {
		return Result{}, refused
	}
	r, done := s.answer(c.Number)
	switch {
	case !done:
		return Result{}, isNew
	case r.Err == nil && !Fits(c.Command, r.Value):
		return Result{}, refused // it was the number of a command of another form
	}
	r.Repeated = true
	return r, repeated
}

// notNow reports whether a command was refused for a reason that may pass: the members' states
// differ, the quota is used up, or a limit is reached. The result is not kept, so that a retry with
// the same number is applied once there is room. A client that got such a refusal after a try
// without an answer does not know the outcome: that try may still be on its way.
func notNow(err error) bool {
	if _, limited := err.(*access.LimitError); limited { //nolint:errorlint // apply wraps none
		return true
	}
	return err == ErrDiverged || err == ErrNoSpace //nolint:errorlint // as above
}

// Fits reports whether a value may be the result of a command that has no error: a client that
// uses a number twice must not make anybody read one result as another.
func Fits(c Command, v any) (ok bool) {
	switch c := Inner(c).(type) {
	case *OpenSession:
		_, ok = v.(Session)
	case *SetAlarm:
		_, ok = v.([]Alarm)
	case *Put:
		_, ok = v.(*PutResult)
	case *DeleteRange:
		_, ok = v.(*DeleteResult)
	case *Grant:
		info, _ := GrantResult(v)
		ok = info != nil
	case *ChangeTTL, *HandOver, *Resume:
		_, ok = v.(*lease.Info)
	case *Revoke:
		_, ok = v.(*RevokeResult)
	case *Txn:
		r, isTxn := v.(*TxnResult)
		if !isTxn || !r.Succeeded && len(c.Compare) == 0 { // no condition, so none that failed
			return false
		}
		ops := c.Else
		if r.Succeeded {
			ops = c.Then
		}
		return slices.EqualFunc(ops, r.Responses, fitsOp)
	default:
		return v == nil
	}
	return ok
}

func fitsOp(op Op, v any) (ok bool) {
	switch {
	case op.Put != nil:
		return Fits(op.Put, v)
	case op.Delete != nil:
		return Fits(op.Delete, v)
	case op.Txn != nil:
		return Fits(op.Txn, v)
	case op.Revoke != nil:
		return Fits(op.Revoke, v)
	case op.Range != nil:
		_, ok = v.(*mvcc.RangeResult)
	case op.Grant != nil:
		return Fits(op.Grant, v)
	case op.Draw:
		_, ok = v.(lease.Token)
	default: // Touch
		_, ok = v.(*lease.Info)
	}
	return ok
}
