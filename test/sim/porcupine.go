package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// checkOps trusts the log. The search for a linearization does not: apart from two hints, it uses
// only the clients' requests, their answers and their times, and allows leases to expire. The hints
// can only make it find more violations. First, an unanswered command that is not in the log had no
// effect. Second, the log provides the revision or token that an unanswered command or an expiry
// produced.

// step is one operation of the searched history.
type step struct {
	op *Op // nil for an expiry
	// expire is the lease that an expiry ends, or whose lock delay it ends if delayed is set. token
	// is the token of its incarnation. In an unanswered command, token is the token that the
	// command returned according to the log.
	expire  lease.ID
	delayed bool
	token   lease.Token
	// revision is the store's revision after a command or an expiry.
	revision int64
	answered bool
}

// searched reports whether to search the history of a seed even if the order of the log explains
// it. One seed in sixteen is searched, to check that both methods agree. The seeds are mixed to
// distribute the searches evenly among parallel processes.
func searched(seed uint64) bool { return seed*0x9e3779b97f4a7c15>>60 == 0 }

// checkLinearizable checks S1 by search: the store's operations, including leases and expiry, took
// effect in some sequential order, each between its start and its answer.
func (f *facts) checkLinearizable() {
	history := f.steps()
	if len(history) == 0 {
		return
	}
	limit := time.Duration(f.l.Search) * time.Millisecond
	explained := false
	if o, ok := f.newOrder(history); ok && o.explains() {
		f.report.Explained++
		if !searched(f.h.Seed) {
			return
		}
		explained, limit = true, limit/8
	}
	f.report.Searched++
	switch porcupine.CheckOperationsTimeout(storeModel(), history, limit) {
	case porcupine.Unknown:
		if !explained {
			f.report.Undecided++
		}
	case porcupine.Illegal:
		f.violate(f.h.End, "S1", "no order of the %d operations explains their answers", len(history))
	}
}

// steps builds the history to search.
func (f *facts) steps() []porcupine.Operation {
	var out []porcupine.Operation
	add := func(s *step, client int, from, to Time) {
		out = append(out, porcupine.Operation{
			ClientId: client, Input: s, Call: int64(from), Output: s, Return: int64(to),
		})
	}
	for _, op := range f.h.Ops {
		s := &step{op: op, answered: op.Outcome == Done, revision: op.Fsm.Revision}
		p, logged := f.entryOf[op.ID]
		switch {
		case op.Kind == opEvents, op.Kind == opGroups, op.Kind == opCached && !f.h.InBound:
		case op.Outcome == Done && (op.Kind != opRange || f.searchable(op)):
			add(s, op.Client, op.Start, op.End)
		case op.Outcome == Unknown && op.Kind == opCommand && logged:
			r := &f.outcomes[p.entry][p.command]
			if len(r.steps)+len(r.events) == 0 && r.token() == 0 && !numbered(op.Command) &&
				!aboutRights(op.Command) {
				continue // the command changed nothing and returned nothing
			}
			s.revision, s.token = r.revision, r.token()
			add(s, op.Client, op.Start, Never)
		}
	}
	for _, l := range f.incarnations {
		if l.expired {
			s := &step{
				expire: l.ID, delayed: l.delayed, token: l.token, answered: true,
				revision: f.endRevision(l),
			}
			add(s, len(f.h.Ops), f.earliest(l), l.until)
		}
	}
	return out
}

// numbered reports whether a command refers to earlier requests.
func numbered(c fsm.Command) bool {
	switch c.(type) {
	case *fsm.OpenSession, *fsm.Once:
		return true
	default:
		return false
	}
}

// endRevision returns the store's revision after a lease has ended.
func (f *facts) endRevision(l *incarnation) int64 {
	if _, s := f.endStep(l); s != nil {
		return s.revision
	}
	return 0
}

// endStep returns the step that ended an incarnation, and its position in the log.
func (f *facts) endStep(l *incarnation) (at logPosition, s *modelStep) {
	if l.ended == len(f.outcomes) {
		return logPosition{}, nil
	}
	for k := range f.outcomes[l.ended] {
		steps := f.outcomes[l.ended][k].steps
		for i := range steps {
			released := steps[i].kind == fsm.LeaseReleased
			if steps[i].token == l.token && steps[i].ends() && released == (l.delayed && l.expired) {
				return logPosition{l.ended, k}, &steps[i]
			}
		}
	}
	return logPosition{}, nil
}

// searchable reports whether a read returns the complete newest state.
func (f *facts) searchable(op *Op) bool {
	o := op.Request.Range.Options
	return !op.Serializable && o.Revision == 0 && !o.CountOnly && o.SortBy == mvcc.None &&
		op.Err == nil
}

// earliest returns the first instant at which a lease may expire, which is one TTL after its last
// acknowledged renewal was sent (L1).
func (f *facts) earliest(l *incarnation) Time {
	at := l.from
	for _, t := range l.terms {
		at = max(at, f.kept(l, t.at, t.ttl))
	}
	for _, op := range f.promises(l) {
		at = max(at, f.kept(l, op.Start, op.TTL))
	}
	if !f.h.InBound || at > l.until {
		return l.from
	}
	return at
}

// storeModel adapts the model to porcupine.
func storeModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return newModel() },
		Step: func(state, input, _ any) (bool, any) {
			next, ok := input.(*step).take(state.(*model))
			return ok, next
		},
		Equal: func(a, b any) bool { return a.(*model).equal(b.(*model)) },
		Hash:  func(a any) uint64 { return a.(*model).hash() },
		DescribeOperation: func(input, _ any) string {
			s := input.(*step)
			if s.op == nil {
				return fmt.Sprintf("expire %d", s.expire)
			}
			return fmt.Sprintf("operation %d", s.op.ID)
		},
	}
}

// take tries a step on a model and returns the resulting model. The given model is unchanged.
func (s *step) take(m *model) (*model, bool) {
	if s.reads() {
		return m, s.takeIn(m)
	}
	if s.far(m) {
		return m, false
	}
	next := m.clone()
	return next, s.takeIn(next)
}

// reads reports whether the step changes nothing that the search tracks.
func (s *step) reads() bool {
	return s.op != nil && (s.op.Kind != opCommand || operators(s.op.Command))
}

// far reports that the step cannot lead from this state to its revision, so it is pointless to try
// the step.
func (s *step) far(m *model) bool {
	if s.op != nil && numbered(s.op.Command) {
		return false // the revision may be that of the first request
	}
	return s.revision != m.revision && s.revision != m.revision+1
}

// takeIn performs a step on a model in place. If it rejects the step, the model is unusable.
func (s *step) takeIn(m *model) bool {
	if s.op == nil {
		i, ok := m.lease(s.expire)
		if !ok || m.leases[i].token != s.token || m.leases[i].delayed != s.delayed {
			return false
		}
		m.expire(&modelResult{}, i)
		return m.revision == s.revision
	}
	switch s.op.Kind {
	case opCommand:
		return s.command(m)
	case opRange:
		got := s.op.Answer.Range
		if got.Revision != m.revision {
			return false
		}
		c := s.op.Request.Range
		return differsRange(got.KVs, wanted(m.scan(c.Key, c.End), &c.Options)) == ""
	case opCached:
		c := s.op.Request.Range
		return differsRange(s.op.Answer.Range.KVs, m.scan(c.Key, c.End)) == ""
	case opRenew:
		live := m.live(s.op.Lease, s.op.Request.Token) != nil
		if s.op.Err != nil {
			return !errors.Is(s.op.Err, lease.ErrNotFound) || !live
		}
		return live
	default:
		return m.alive(s.op.Lease) == s.op.Found
	}
}

func (s *step) command(m *model) bool {
	if operators(s.op.Command) {
		return true
	}
	r := m.do(0, s.op.Caller, s.op.Command)
	if !s.answered {
		return s.revision == r.revision && (r.token() == 0 || r.token() == s.token)
	}
	if _, grant := s.op.Command.(*fsm.Grant); grant && r.lease != nil {
		info, _ := fsm.GrantResult(s.op.Fsm.Value)
		return info != nil && info.Token == r.lease.token && s.op.Fsm.Revision == r.revision
	}
	return differs(&s.op.Fsm, &r) == ""
}
