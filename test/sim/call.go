package sim

import (
	"errors"
	"fmt"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// call is an in-flight operation.
type call struct {
	op   *Op
	c    *client
	who  caller
	proc *process // the process that the request reached
	done bool     // the call was answered, or its caller gave up
	// token is the token of the thread's wait, or the number of the keeper's batch.
	token uint64
	// beside is set if the call renews a lease that its keeper does not keep alive.
	beside bool
	// stream carries the call. It is nil if the call has its own connection.
	stream *stream
	// by is the state of users and roles that the call was admitted under, or nil if there is none.
	by       *access.State
	admitted bool
	// joined is the group that a renewed lease joined, or 0.
	joined lease.GroupID
	// ticket is the ticket that the client waits for after the operation, or nil if it does not
	// wait.
	ticket *ticket
}

// caller waits for the answer to a call.
type caller interface {
	// gone reports whether the caller's process has ended.
	gone() bool
	// answered is called when the call is done.
	answered(q *call)
}

func (t *thread) gone() bool { return t.dead }

func (t *thread) answered(q *call) { t.wake(q.token) }

var (
	errTimeout = errors.New("sim: no answer in time")
	errRefused = errors.New("sim: connection refused")
	errReset   = errors.New("sim: connection reset")
	errAnswer  = errors.New("sim: the answer is to something else")
	errFull    = errors.New("sim: the member's disk is full")
)

// do performs an operation at the client's member. It returns when the operation is answered or
// times out.
func (t *thread) do(op *Op) *Op { return t.doAndWait(op, nil) }

// doAndWait is like do, but the client then waits in a wait queue.
func (t *thread) doAndWait(op *Op, x *ticket) *Op {
	q := &call{op: op, c: t.c, who: t, token: t.token, ticket: x}
	t.call = q
	t.c.send(q)
	t.park()
	t.call = nil
	q.finish()
	if op.Outcome != Done {
		t.c.w.tracef("client %d: op %d at member %d, outcome %d: %v", t.c.id, op.ID, op.Member,
			op.Outcome, op.Err)
		t.move()
	}
	return op
}

// send sends operations to the client's member in one message.
func (c *client) send(calls ...*call) {
	w := c.w
	for _, q := range calls {
		op := q.op
		op.ID, op.Client, op.Member = len(w.h.Ops), c.id, c.at
		op.Start, op.LocalStart = w.now, c.local()
		if s := q.stream; s != nil && s.via != nil {
			op.Member = s.member
			if op.Kind == opRenew {
				op.Groups = &renewedGroups{}
			}
		}
		w.h.Ops = append(w.h.Ops, op)
	}
	w.after(w.p.Timeout, func() {
		for _, q := range calls {
			q.end(Unknown, errTimeout)
		}
	})
	s := calls[0].stream
	if c.cut {
		s.lose()
		return
	}
	w.at(s.arrives(w, w.p.Delay/4+w.exp(w.p.Delay)), func() {
		if s != nil && s.via != nil {
			s.via.take(calls)
			return
		}
		for _, q := range calls {
			if !q.vanishes() {
				q.request()
			}
		}
	})
}

// vanishes reports whether a message to or from the client is lost.
func (q *call) vanishes() bool {
	if q.c.cut {
		q.stream.lose()
	}
	return q.c.cut || q.stream.isLost()
}

// finish runs when the client has received the outcome. An answer of the wrong kind is a violation
// and counts as no answer.
func (q *call) finish() {
	q.done = true
	op := q.op
	op.End = q.c.w.now
	if op.Outcome != Done || op.answers() {
		return
	}
	q.c.w.broken("S1", fmt.Sprintf("operation %d of client %d (%s) was answered by member %d with "+
		"%s, which is an answer of the wrong kind", op.ID, op.Client, op.asks(), op.Member, op.says()))
	op.Outcome, op.Err, op.Answer = Unknown, errAnswer, Answer{}
}

// answers reports whether the answer is of the right kind for the operation.
func (op *Op) answers() bool {
	switch {
	case op.Kind == opCommand:
		return op.Fsm.Err != nil || fsm.Fits(op.Command, op.Fsm.Value)
	case op.Kind == opRange && op.Err != nil:
		return op.Request.Range.Options.Revision != 0 // the current revision is never compacted
	case op.Kind == opRange:
		return op.Answer.Range != nil
	default:
		return true
	}
}

// asks describes the request.
func (op *Op) asks() string {
	if op.Kind == opRange {
		r := op.Request.Range
		return fmt.Sprintf("range [%s,%s) at revision %d", r.Key, r.End, r.Options.Revision)
	}
	return show(op.Command)
}

// says describes the answer.
func (op *Op) says() string {
	switch v := op.Fsm.Value.(type) {
	case *fsm.TxnResult:
		parts := make([]string, len(v.Responses))
		for i := range parts {
			parts[i] = fmt.Sprintf("%T", v.Responses[i])
		}
		return fmt.Sprintf("%T, succeeded %t: %v", v, v.Succeeded, parts)
	case nil:
		if op.Err != nil {
			return op.Err.Error()
		}
		return "nothing"
	default:
		return fmt.Sprintf("%T", v)
	}
}

// end sets the outcome at the client, unless it already has one.
func (q *call) end(o Ending, err error) {
	if q.done || q.who.gone() {
		return
	}
	q.done = true
	q.op.Outcome, q.op.Err = o, err
	q.who.answered(q)
}

// request runs when the request arrives at the member.
func (q *call) request() {
	w := q.c.w
	p := w.members[q.op.Member-1].proc
	if p == nil {
		q.reply(Failed, errRefused)
		return
	}
	q.proc = p
	if !q.stream.reaches(p) {
		q.reply(Unknown, errReset)
		return
	}
	if p.frozen <= w.now && (q.look(p) || !q.admitEarly(p)) {
		return
	}
	p.mail.calls = append(p.mail.calls, q)
	p.wake(w.now)
}

// reply returns an outcome to the client. Requests that were sent in one message are answered
// separately and in any order.
func (q *call) reply(o Ending, err error) {
	w, d := q.c.w, q.c.w.p.Delay/4+q.c.w.exp(q.c.w.p.Delay)
	if q.stream != nil {
		d += w.exp(q.stream.lag)
	}
	if s := q.stream; s != nil && s.via != nil && !q.op.byRound() {
		answer := q.op.Answer
		q.op.Answer = Answer{}
		s.via.hear(func() {
			if !q.done {
				q.op.Answer = answer
				q.replyIn(d, o, err)
			}
		})
		return
	}
	q.replyIn(d, o, err)
}

// replyIn is like reply, but with a given network delay.
func (q *call) replyIn(d Time, o Ending, err error) {
	w := q.c.w
	if q.op.Answered == 0 {
		q.op.Answered = w.now
	}
	answer := q.op.Answer
	q.op.Answer = Answer{}
	w.after(d, func() {
		if q.vanishes() || q.done {
			return
		}
		q.op.Answer = answer
		q.end(o, err)
	})
}

// look answers a request that needs only the member's published state.
func (q *call) look(p *process) bool {
	q.identify(p)
	switch {
	case q.op.Kind == opRange && q.op.Serializable:
		q.readRange(p)
	case q.op.Kind == opEvents:
		q.readEvents(p)
	default:
		return false
	}
	return true
}

// arrive passes the request to the core.
func (q *call) arrive(p *process) {
	mail := &p.s.Mail
	switch op := q.op; op.Kind {
	case opCommand:
		if p.m.disk.full {
			q.reply(Failed, errFull)
			return
		}
		mail.Proposals = append(mail.Proposals, &replica.Proposal{
			Command: fsm.OnBehalf(op.Caller, op.Command), Owner: q,
		})
	case opRange:
		r := &replica.Read{Owner: q}
		if f := op.Cache; f != nil {
			r.Fill = &replica.Fill{ID: f.ID, Token: f.Token, Ranges: f.Ranges}
		}
		mail.Reads = append(mail.Reads, r)
	case opTTL:
		mail.Reads = append(mail.Reads, &replica.Read{Owner: q, Leases: []lease.ID{op.Lease}})
	case opRenew:
		mail.Renewals = append(mail.Renewals,
			replica.Renewal{ID: op.Lease, Token: op.Request.Token, Access: q.by, Owner: q})
	}
}

func (q *call) proposed(p *process, r *replica.Proposal) {
	switch {
	case r.Err == nil:
		q.op.Fsm = r.Result
		if denial(r.Result.Err) {
			p.w.cover["command denied"]++
		}
		if q.ticket == nil || !entered(&r.Result) {
			q.reply(Done, nil)
			return
		}
		q.beginWait(p, r.Result.Revision)
	case errors.Is(r.Err, replica.ErrLeaderChanged):
		p.w.cover["command of unknown outcome"]++
		q.reply(Unknown, r.Err)
	default:
		q.unfit(r)
		q.reply(Failed, r.Err)
	}
}

func (q *call) read(p *process, r *replica.Read) {
	switch {
	case r.Err != nil:
		q.reply(Failed, r.Err)
	case q.op.Kind == opTTL:
		q.op.TTL, q.op.Found = r.Left[0].TTL, r.Left[0].Found
		info, _ := p.r.Machine().Lessor().Lookup(q.op.Lease)
		q.op.Answer.Token = info.Token
		q.reply(Done, nil)
	default:
		if r.Fill != nil {
			q.op.CacheTerm = r.Fill.Term
		}
		q.readRange(p)
	}
}

func (q *call) readRange(p *process) {
	c := q.op.Request.Range
	if err := q.mayRead(p, c.Key, c.End); err != nil {
		q.reply(Failed, err)
		return
	}
	res, err := p.view.KV.Range(c.Key, c.End, c.Options)
	if err == nil {
		q.op.Answer.Range = &res
	}
	if x := q.ticket; x != nil && err == nil && x.isIn(&res) {
		q.beginWait(p, res.Revision)
		return
	}
	q.reply(Done, err)
}

// readEvents reads the lease events that the member has.
func (q *call) readEvents(p *process) {
	all := p.view.LeaseEvents
	q.op.Answer.Last = all.Last()
	if q.op.After > all.Last() {
		q.reply(Done, nil) // the member is behind
		return
	}
	events, err := eventsAfter(all, q.op.After)
	q.op.Answer.Events = events
	q.reply(Done, err)
}

// eventsAfter returns all lease events after a number.
func eventsAfter(all fsm.LeaseEvents, seq uint64) (out []fsm.LeaseEvent, err error) {
	for {
		events, err := all.After(seq)
		if err != nil || len(events) == 0 {
			return out, err
		}
		out = append(out, events...)
		seq += uint64(len(events))
	}
}

func (q *call) renewed(p *process, n *replica.Renewal) {
	switch {
	case n.Err == nil:
		q.op.TTL = n.TTL
		q.reply(Done, nil)
	case errors.Is(n.Err, lease.ErrNotFound):
		if p.w.now < p.w.oracle.changed+Second {
			p.w.cover["not found soon after a leader change"]++
		}
		q.reply(Done, n.Err)
	default:
		q.reply(Failed, n.Err)
	}
}
