package sim

import (
	"errors"
	"iter"

	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// client is one machine with a program that uses the cluster.
type client struct {
	w     *world
	id    int
	clock clock
	// at is the member it is connected to.
	at uint64
	// cut says that nothing gets through to it or from it.
	cut bool
	// paused is until when it stands still. Its clock goes on.
	paused  Time
	threads []*thread
	// sessions are its leases that it keeps alive.
	sessions []*session
}

// thread is one sequence of a client's operations, a coroutine.
type thread struct {
	c      *client
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	token  uint64 // of the wait that is under way
	dead   bool
	call   *call
	// watching is the last watch that it opened.
	watching *watcher
}

// errKilled unwinds a thread whose client's process has ended.
var errKilled = errors.New("sim: the client was killed")

// spawn runs body as a thread.
func (c *client) spawn(body func(*thread)) *thread {
	t := &thread{c: c}
	t.resume, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			t.dead = true
			if r := recover(); r != nil && r != error(errKilled) {
				panic(r)
			}
		}()
		t.yield = yield
		body(t)
	})
	c.threads = append(c.threads, t)
	c.w.after(c.w.exp(c.w.p.Think), func() { t.wake(0) })
	return t
}

// kill ends the client's process: it forgets everything.
func (c *client) kill() {
	c.hangUp()
	for _, t := range c.threads {
		t.stop()
		t.dead = true
		if x := t.watching; x != nil && !x.closed {
			x.close()
		}
	}
	c.threads = nil
	for _, s := range c.sessions {
		s.forget()
	}
	c.sessions = nil
}

// wake goes on with a thread that waits with the token, once its client is not paused.
func (t *thread) wake(token uint64) {
	switch {
	case t.dead || t.token != token:
	case t.c.paused > t.c.w.now:
		t.c.w.at(t.c.paused, func() { t.wake(token) })
	default:
		t.token++
		t.resume()
	}
}

// park waits until wake is called with the present token.
func (t *thread) park() {
	if !t.yield(struct{}{}) {
		panic(errKilled)
	}
}

// sleep waits for as long as the client's clock takes.
func (t *thread) sleep(d Time) {
	token := t.token
	t.c.w.after(Time(float64(d)/t.c.clock.rate), func() { t.wake(token) })
	t.park()
}

// think waits a while.
func (t *thread) think() { t.sleep(t.c.w.exp(t.c.w.p.Think)) }

// local reads the client's clock.
func (c *client) local() Time { return c.clock.local(c.w.now) }

// call is an operation on its way.
type call struct {
	op    *Op
	t     *thread
	token uint64
	proc  *process // where it has arrived
	done  bool     // the client has an answer, or gave up
}

// do performs an operation at the member that the client is connected to, and
// returns when it has an answer or gives up.
func (t *thread) do(op *Op) *Op {
	c, w := t.c, t.c.w
	op.ID, op.Client, op.Member = len(w.h.Ops), c.id, c.at
	op.Start, op.LocalStart = w.now, c.local()
	w.h.Ops = append(w.h.Ops, op)
	q := &call{op: op, t: t, token: t.token}
	t.call = q
	w.after(w.p.Timeout, func() { q.end(Unknown, errTimeout) })
	if !c.cut {
		w.after(w.p.Delay/4+w.exp(w.p.Delay), q.request)
	}
	t.park()
	t.call = nil
	q.done = true
	op.End, op.LocalEnd = w.now, c.local()
	if op.Outcome != Done {
		w.tracef("client %d: op %d at member %d, outcome %d: %v", c.id, op.ID, op.Member, op.Outcome,
			op.Err)
		t.move()
	}
	return op
}

var (
	errTimeout = errors.New("sim: no answer in time")
	errRefused = errors.New("sim: connection refused")
	errReset   = errors.New("sim: connection reset")
	errFull    = errors.New("sim: the member's disk is full")
)

// end gives the client an outcome, unless it has one.
func (q *call) end(o Ending, err error) {
	if q.done || q.t.dead {
		return
	}
	q.done = true
	q.op.Outcome, q.op.Err = o, err
	q.t.wake(q.token)
}

// request is when the request arrives at the member.
func (q *call) request() {
	w := q.t.c.w
	if q.t.c.cut {
		return
	}
	p := w.members[q.op.Member-1].proc
	if p == nil {
		q.reply(Failed, errRefused)
		return
	}
	q.proc = p
	p.mail.calls = append(p.mail.calls, q)
	p.wake(w.now)
}

// reply brings an outcome to the client.
func (q *call) reply(o Ending, err error) {
	w := q.t.c.w
	if q.op.Answered == 0 {
		q.op.Answered = w.now
	}
	answer := q.op.Answer
	q.op.Answer = Answer{}
	w.after(w.p.Delay/4+w.exp(w.p.Delay), func() {
		if q.t.c.cut || q.done {
			return
		}
		q.op.Answer = answer
		q.end(o, err)
	})
}

// arrive gives the request to the replica.
func (q *call) arrive(p *process) {
	switch op := q.op; op.Kind {
	case OpCommand:
		if p.m.disk.full {
			q.reply(Failed, errFull)
			return
		}
		p.r.Propose(&replica.Proposal{Command: op.Command, Owner: q})
	case OpRange:
		if op.Serializable {
			q.readRange(p)
			return
		}
		p.r.Read(&replica.Read{Owner: q})
	case OpTTL:
		p.r.Read(&replica.Read{Owner: q, Lease: op.Lease})
	case OpRenew:
		p.r.Renew(replica.Renewal{ID: op.Lease, Owner: q})
	}
}

func (q *call) proposed(p *process, r *replica.Proposal) {
	switch {
	case r.Err == nil:
		q.op.Fsm = r.Result
		q.reply(Done, nil)
	case errors.Is(r.Err, replica.ErrLeaderChanged):
		p.w.cover["command of unknown outcome"]++
		q.reply(Unknown, r.Err)
	default:
		q.reply(Failed, r.Err)
	}
}

func (q *call) read(p *process, r *replica.Read) {
	switch {
	case r.Err != nil:
		q.reply(Failed, r.Err)
	case q.op.Kind == OpTTL:
		q.op.TTL, q.op.Found = r.Remaining, r.Found
		q.reply(Done, nil)
	default:
		q.readRange(p)
	}
}

func (q *call) readRange(p *process) {
	c := q.op.Request.Range
	res, err := p.view.KV.Range(c.Key, c.End, c.Options)
	if err == nil {
		q.op.Answer.Range = &res
	}
	q.reply(Done, err)
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

// lostMember tells the client that a process that it may have asked has ended.
func (c *client) lostMember(p *process, silent bool) {
	for _, t := range c.threads {
		if q := t.call; q != nil && q.proc == p && !q.done && !silent {
			q.op.Answer = Answer{}
			q.reply(Unknown, errReset)
		}
	}
}

// hangUp ends the client's connection. The member it was to finds that out soon,
// and which leases were kept alive over it.
func (c *client) hangUp() {
	var ids []lease.ID
	for _, s := range c.sessions {
		if !s.ended && !s.quiet {
			ids = append(ids, s.terms.ID)
		}
	}
	p := c.w.members[c.at-1].proc
	if len(ids) == 0 || p == nil || c.cut {
		return
	}
	c.w.after(c.w.exp(c.w.p.Delay), func() {
		if !p.dead {
			p.mail.tasks = append(p.mail.tasks, func() { p.r.Abandon(ids) })
			p.wake(c.w.now)
		}
	})
}

// move connects the client to another member.
func (t *thread) move() {
	w := t.c.w
	t.c.hangUp()
	t.c.at = w.anyMember()
	t.sleep(w.exp(t.c.w.p.Timeout / 20))
}

// anyMember returns one that is in the cluster, as far as clients know.
func (w *world) anyMember() uint64 {
	for range 100 {
		if m := w.members[w.rng.IntN(len(w.members))]; !m.gone && !m.fresh {
			return m.id
		}
	}
	return 1
}

// addClient makes a client with its threads.
func (w *world) addClient(i int) {
	c := &client{w: w, id: i, clock: w.clock(), at: uint64(1 + i%w.p.Members)}
	w.clients = append(w.clients, c)
	c.boot()
}

// boot starts the client's program: one or two of the things that clients do.
func (c *client) boot() {
	programs := [...]func(*thread){
		(*thread).registers, (*thread).holder, (*thread).locker, (*thread).candidate,
		(*thread).observer, (*thread).namer, (*thread).leaver, (*thread).regranter,
	}
	c.spawn(programs[c.id%len(programs)])
	if c.w.chance(2) {
		c.spawn(programs[c.w.rng.IntN(len(programs))])
	}
	if c.id == 0 {
		c.spawn((*thread).compactor)
		if c.w.p.Doze > 0 {
			c.spawn((*thread).depositor)
		}
	}
}
