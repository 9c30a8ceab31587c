package fsm

import (
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// Session identifies a client that numbers its writes, so that each write takes effect only once,
// no matter how often it is sent. The request ID of a grant is a different mechanism: see
// [Grant.Repeatable].
type Session struct {
	// ID is assigned by OpenSession. It is never assigned again, except possibly after a restore
	// from a backup.
	ID uint64
	// Nonce is a random number chosen by the client. It distinguishes clients that got the same ID
	// in different generations of the cluster.
	Nonce uint64
}

// OpenSession creates and returns a Session. If there are too many sessions, the least recently
// used ones are evicted.
type OpenSession struct{ Nonce uint64 }

// Once applies Command unless the session has already used its number. Command must be a Put,
// DeleteRange, Txn, Grant, Revoke, ChangeTTL, HandOver or Resume. If the number was used, Once
// returns the stored result, marked as Repeated. A rejection that may be temporary is not stored:
// see temporary. If the session is unknown, has dropped the number, or has stored a result that
// does not fit Command, nothing changes and the result is ErrSessionNotFound.
type Once struct {
	Session Session
	// Number is the idempotency key. The client chooses a new one for each command, starting at 1.
	Number uint64
	// Settled acknowledges results: the client no longer needs the results of lower numbers. Those
	// results are dropped. If a command with a lower number arrives late, it is rejected.
	Settled uint64
	Command Command
}

func (*OpenSession) kind() kind { return kindOpenSession }
func (*Once) kind() kind        { return kindOnce }

// Inner returns c without its By and Once, for code that inspects commands.
func Inner(c Command) Command {
	_, c = unwrap(c)
	if o, ok := c.(*Once); ok {
		return o.Command
	}
	return c
}

// repeatable reports whether a Once can wrap commands of this kind. Only their results can be
// stored.
func (k kind) repeatable() bool {
	switch k {
	case kindPut, kindDeleteRange, kindTxn, kindGrant, kindRevoke, kindChangeTTL, kindHandOver,
		kindResume:
		return true
	default:
		return false
	}
}

// applyOnce applies a Once for a user, or for an anonymous caller if user is "".
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
	if !temporary(r.Err) {
		m.sessions.keep(s, c.Number, r)
	}
	return r
}

// MayBeRepeated reports whether the state machine could recognize a duplicate of the command by its
// idempotency key or its request ID.
func MayBeRepeated(c Command) bool {
	_, c = unwrap(c)
	_, numbered := c.(*Once)
	return numbered || repeatableOf(c) != nil
}

// Repeated returns the result of a repeated command, and whether the command was already applied.
// Call it only if [MayBeRepeated] returns true. It changes nothing. In particular, it does not
// renew the lease of a grant.
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

// outcome is the effect of applying a Once.
type outcome uint8

const (
	refused  outcome = iota // nothing changes: see Once
	repeated                // the stored result is returned
	isNew                   // the command is applied
)

// outcome returns the effect of applying c and, if c is a duplicate, the stored result. A nil
// session means that the session is unknown. outcome changes nothing.
func (s *session) outcome(c *Once) (Result, outcome) {
	if s == nil || c.Number < max(s.settled, c.Settled) {
		return Result{}, refused
	}
	r, done := s.answer(c.Number)
	switch {
	case !done:
		return Result{}, isNew
	case r.Err == nil && !Fits(c.Command, r.Value):
		return Result{}, refused // the number was used for a different command
	}
	r.Repeated = true
	return r, repeated
}

// temporary reports whether the reason for a rejection can go away: the members' states differ, the
// quota is exhausted, or a limit is reached. Such a result is not stored, so that a retry with the
// same number is applied once there is room. If an earlier attempt got no response, such a
// rejection leaves the client unsure of the outcome: the earlier attempt may still be in flight.
func temporary(err error) bool {
	if _, limited := err.(*access.LimitError); limited { //nolint:errorlint // apply wraps none
		return true
	}
	return err == ErrDiverged || err == ErrNoSpace //nolint:errorlint // as above
}

// Fits reports whether a successful c can have the result v. If a client uses a number for two
// commands, this check keeps one command from getting the result of the other.
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
		// without conditions, a transaction cannot fail
		if !isTxn || !r.Succeeded && len(c.Compare) == 0 {
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
