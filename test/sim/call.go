package sim

import (
	"errors"
	"fmt"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// call is an operation on its way.
type call struct {
	op   *Op
	c    *client
	who  caller
	proc *process // where it has arrived
	done bool     // there is an answer, or who waited gave up
	// token is that of the thread's wait, or the number of the keeper's batch.
	token uint64
	// beside says that it renews a lease which its keeper does not keep.
	beside bool
	// stream is what the call goes over, nil for a connection of its own.
	stream *stream
	// by are the users and roles by which it was admitted, if it was.
	by       *access.State
	admitted bool
	// joined is the group that a lease which was renewed is in, 0 for none.
	joined lease.GroupID
	// ticket is where the client waits once the operation is done, nil for nowhere.
	ticket *ticket
}

// caller waits for the answer to a call.
type caller interface {
	// gone reports whether nobody waits any more, because the process has ended.
	gone() bool
	// answered says that the call is done.
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

// do performs an operation at the member that the client is connected to, and
// returns when it has an answer or gives up.
func (t *thread) do(op *Op) *Op { return t.doAndWait(op, nil) }

// doAndWait is do for a client that waits in a wait queue once the operation is done.
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

// send sends operations in one message to the member that the client is connected to.
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

// vanishes reports whether what is on its way from the client, or to it, gets lost.
func (q *call) vanishes() bool {
	if q.c.cut {
		q.stream.lose()
	}
	return q.c.cut || q.stream.isLost()
}

// finish notes when the client has looked at the outcome. An answer to something else is a
// violation, and to the client no answer.
func (q *call) finish() {
	q.done = true
	op := q.op
	op.End = q.c.w.now
	if op.Outcome != Done || op.answers() {
		return
	}
	q.c.w.broken("S1", fmt.Sprintf("operation %d of client %d (%s) was answered by member %d with "+
		"%s, which is no answer to it", op.ID, op.Client, op.asks(), op.Member, op.says()))
	op.Outcome, op.Err, op.Answer = Unknown, errAnswer, Answer{}
}

// answers reports whether the answer of an operation that is done is of the kind that was asked
// for.
func (op *Op) answers() bool {
	switch {
	case op.Kind == opCommand:
		return op.Fsm.Err != nil || fsm.Fits(op.Command, op.Fsm.Value)
	case op.Kind == opRange && op.Err != nil:
		return op.Request.Range.Options.Revision != 0 // the present is always there
	case op.Kind == opRange:
		return op.Answer.Range != nil
	default:
		return true
	}
}

// asks tells what a command or a read asked for.
func (op *Op) asks() string {
	if op.Kind == opRange {
		r := op.Request.Range
		return fmt.Sprintf("range [%s,%s) at revision %d", r.Key, r.End, r.Options.Revision)
	}
	return show(op.Command)
}

// says tells of which kind the answer is.
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

// end gives the client an outcome, unless it has one.
func (q *call) end(o Ending, err error) {
	if q.done || q.who.gone() {
		return
	}
	q.done = true
	q.op.Outcome, q.op.Err = o, err
	q.who.answered(q)
}

// request is when the request arrives at the member.
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

// reply brings an outcome to the client. The answers to what came in one message go
// each by itself, in any order.
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

// replyIn is reply over a connection that takes so long.
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

// look answers a request that needs no more than the state that the member shows.
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

// arrive leaves the request for the core.
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

// readEvents reads events of leases as far as the member has come.
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

// eventsAfter returns all events of leases after a number.
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
