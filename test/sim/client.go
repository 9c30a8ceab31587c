package sim

import (
	"errors"
	"iter"

	"leasehold.dev/internal/access"
)

// client is a machine that runs a program using the cluster.
type client struct {
	w     *world
	id    int
	clock clock
	// at is the member that the client is connected to.
	at uint64
	// cut is set while all messages to and from the client are lost.
	cut bool
	// paused is the end of the current pause. The client's clock keeps running.
	paused  Time
	threads []*thread
	// caching is true if the program uses a cache. waits is true if it uses wait queues.
	caching, waits bool
	// keeper keeps the process's leases alive.
	keeper *keeper
	// user is the client's identity if it is a tenant. login is the revision of users and roles at
	// the time of login.
	user  access.Caller
	login uint64
}

// thread is a sequence of operations of one client, run as a coroutine.
type thread struct {
	c      *client
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	token  uint64 // of the current wait
	dead   bool
	call   *call
	// watching is the thread's most recent watch, and ticket its most recent ticket in a wait
	// queue.
	watching *watcher
	ticket   *ticket
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

// kill ends the client's process, which loses all of its state.
func (c *client) kill() {
	c.hangUp()
	for _, t := range c.threads {
		t.stop()
		t.dead = true
		if x := t.watching; x != nil && !x.closed {
			x.close()
		}
		if x := t.ticket; x != nil {
			x.close()
		}
	}
	c.threads = nil
	c.keeper.kill()
}

// wake resumes a thread that is waiting with the token. If the client is paused, the thread resumes
// when the pause ends.
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

// park blocks until wake is called with the current token.
func (t *thread) park() {
	if !t.yield(struct{}{}) {
		panic(errKilled)
	}
}

// sleep waits for a duration, measured on the client's clock.
func (t *thread) sleep(d Time) {
	token := t.token
	t.c.w.after(Time(float64(d)/t.c.clock.rate), func() { t.wake(token) })
	t.park()
}

// think waits for a random time.
func (t *thread) think() { t.sleep(t.c.w.exp(t.c.w.p.Think)) }

// local reads the client's clock.
func (c *client) local() Time { return c.clock.local(c.w.now) }

// lostMember notifies the client that a process has ended. The client may have sent requests to it.
func (c *client) lostMember(p *process, silent bool) {
	reset := func(q *call) {
		if q != nil && q.proc == p && !q.done && !silent {
			q.op.Answer = Answer{}
			q.reply(Unknown, errReset)
		}
	}
	for _, t := range c.threads {
		reset(t.call)
	}
	for _, q := range c.keeper.flying {
		reset(q)
	}
	if !silent {
		c.lostCaches(p)
	}
}

// hangUp closes the client's connection. The member detects this soon and looks up the leases that
// the connection kept alive.
func (c *client) hangUp() {
	if s := c.keeper.stream; s != nil && !s.over && s.via != nil {
		c.keeper.disconnect() // the relay handles this
		return
	}
	c.keeper.disconnect()
	ids := c.keeper.kept()
	p := c.w.members[c.at-1].proc
	if len(ids) == 0 || p == nil || c.cut {
		return
	}
	c.w.after(c.w.exp(c.w.p.Delay), func() {
		if !p.dead {
			p.mail.Abandoned = append(p.mail.Abandoned, ids...)
			p.wake(c.w.now)
		}
	})
}

// move connects the client to another member.
func (t *thread) move() {
	t.c.hangUp()
	t.c.at = t.c.w.anyMember()
	t.sleep(t.c.w.exp(t.c.w.p.Timeout / 20))
}

// anyMember returns a random member that clients believe to be in the cluster.
func (w *world) anyMember() uint64 {
	for range 100 {
		if m := w.members[w.rng.IntN(len(w.members))]; !m.gone && !m.fresh {
			return m.id
		}
	}
	return 1
}

// newClient creates a client without threads.
func (w *world) newClient(at uint64) *client {
	c := &client{w: w, id: len(w.clients), clock: w.clock(), at: at}
	c.keeper = newKeeper(c)
	w.clients = append(w.clients, c)
	return c
}

// addClient creates a client with its threads.
func (w *world) addClient(i int) { w.newClient(uint64(1 + i%w.p.Members)).boot() }

// boot starts the client's program: one or two random activities.
func (c *client) boot() {
	c.keeper = newKeeper(c)
	if c.user.User != "" {
		c.bootTenant()
		return
	}
	if c.caching {
		c.spawn((*thread).cacher)
		c.spawn((*thread).peeker)
		if c.w.chance(2) {
			c.spawn((*thread).cacher)
		}
		return
	}
	if c.waits {
		for range 2 + c.w.rng.IntN(2) {
			c.spawn((*thread).waiter)
		}
		return
	}
	programs := [...]func(*thread){
		(*thread).registers, (*thread).attacher, (*thread).locker, (*thread).candidate,
		(*thread).observer, (*thread).namer, (*thread).leaver, (*thread).regranter,
		(*thread).resumer, (*thread).eventReader, (*thread).retrier,
	}
	c.spawn(programs[c.id%len(programs)])
	if c.w.chance(2) {
		c.spawn(programs[c.w.rng.IntN(len(programs))])
	}
	if c.id == 0 {
		c.spawn((*thread).compactor)
		if c.w.p.Sleep > 0 {
			c.spawn((*thread).granter)
		}
	}
}
