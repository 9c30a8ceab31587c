package native

import (
	"bytes"
	"sync"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/turn"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/line"
)

// turns are the requests of one stream that wait in lines. It is a feed. begin and drop
// belong to the goroutine that sends, as next does; end may be called from any.
type turns struct {
	store *store
	wake  func()

	mu    sync.Mutex // guards what follows, and what the waiters are to be told
	open  map[uint64]*waiter
	ready []*waiter // that have something to be told, each once
}

// waiter is one of them. It implements turn.Waiter.
type waiter struct {
	feed  *turns
	id    uint64
	place *turn.Place

	// Guarded by the feed's mu.
	queued bool
	told   bool // there is news
	news   turn.News
	ended  bool // by the client
}

func newTurns(s *store, wake func()) *turns {
	return &turns{store: s, wake: wake, open: make(map[uint64]*waiter)}
}

// begin begins to wait for a key as it was at a revision. It returns where the key stands, nil
// if it is in no line, and whether more is told.
func (t *turns) begin(id uint64, a *turn.Ask, asOf int64) (_ *pb.Turn, more bool) {
	x := &waiter{feed: t, id: id}
	place, news := t.store.node.Lines().Wait(*a, asOf, x)
	if place == nil {
		return turnOf(&news), false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	x.place = place
	t.open[id] = x
	return turnOf(&news), true
}

// end implements feed. What it leaves to be told waits for the next message.
func (t *turns) end(id uint64) {
	x := t.forget(id)
	if x == nil {
		return
	}
	x.place.Leave()
	t.mu.Lock()
	defer t.mu.Unlock()
	x.ended = true
	x.queueLocked()
}

// drop ends a request of which nothing more is to be told.
func (t *turns) drop(id uint64) {
	x := t.forget(id)
	if x == nil {
		return
	}
	x.place.Leave()
	t.mu.Lock()
	x.told = false
	t.mu.Unlock()
}

func (t *turns) forget(id uint64) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.open[id]
	delete(t.open, id)
	return x
}

// close ends all, as the stream ends.
func (t *turns) close() {
	t.mu.Lock()
	list := t.open
	t.open = nil
	t.mu.Unlock()
	for _, x := range list {
		x.place.Leave()
	}
}

// Told implements turn.Waiter. That the key is gone takes the place of that its turn came.
func (x *waiter) Told(news turn.News) {
	t := x.feed
	t.mu.Lock()
	x.told, x.news = true, news
	x.queueLocked()
	t.mu.Unlock()
	t.wake() // also if there are others, which may wait for the next message
}

// queueLocked notes that there is something to tell.
func (x *waiter) queueLocked() {
	if !x.queued {
		x.queued = true
		x.feed.ready = append(x.feed.ready, x)
	}
}

// next implements feed.
func (t *turns) next() *pb.Response {
	for {
		t.mu.Lock()
		x := t.popLocked()
		if x == nil {
			t.mu.Unlock()
			return nil
		}
		told, ended, news := x.told, x.ended, x.news
		x.told = false
		t.mu.Unlock()
		switch {
		case ended:
			return &pb.Response{Id: x.id}
		case !told:
			continue
		case news.State == turn.Gone:
			t.drop(x.id)
		}
		return t.response(x.id, &news)
	}
}

// response tells of a place. It takes one piece of memory.
func (t *turns) response(id uint64, news *turn.News) *pb.Response {
	var out struct {
		response pb.Response
		body     pb.Response_Txn
		message  pb.TxnResponse
		header   pb.Header
		turn     pb.Turn
	}
	t.store.fillHeader(&out.header, t.store.node.View(), news.Revision)
	fillTurn(&out.turn, news)
	out.message.Header, out.message.Turn = &out.header, &out.turn
	out.body.Txn = &out.message
	out.response.Id, out.response.More = id, news.State != turn.Gone
	out.response.Body = &out.body
	return &out.response
}

// popLocked takes the first out of those that have something to tell.
func (t *turns) popLocked() *waiter {
	if len(t.ready) == 0 {
		return nil
	}
	x := t.ready[0]
	t.ready[0] = nil
	t.ready = t.ready[1:]
	x.queued = false
	return x
}

// turnOf converts news, nil if there is no such place.
func turnOf(n *turn.News) *pb.Turn {
	if n.State == turn.None {
		return nil
	}
	m := new(pb.Turn)
	fillTurn(m, n)
	return m
}

// fillTurn makes an empty message tell of a place.
func fillTurn(m *pb.Turn, n *turn.News) {
	m.CreateRevision = n.Created
	switch n.State {
	case turn.Waiting:
		m.State = pb.Turn_STATE_WAITING
	case turn.Come:
		m.State = pb.Turn_STATE_COME
		if n.After != "" {
			m.After = []byte(n.After)
		}
	case turn.Gone:
		m.State, m.Why, m.Lease = pb.Turn_STATE_GONE, whys[n.Why], int64(n.Lease)
		if n.Unknown {
			m.Why = pb.Event_WHY_UNKNOWN
		}
	}
}

// waitingJob is the job of a transaction over a stream, which may wait when it is done.
func (t *stream) waitingJob(q *request, r *pb.TxnRequest) (job, error) {
	j, err := t.txnJob(r, t.by)
	if a := r.GetAwaitTurn(); a != nil && err == nil {
		q.await, err = askOf(a)
		q.made = madeOf(r)
	}
	return j, err
}

// madeOf returns by which revision the key was made that a transaction waits for, if it is to
// be done only then; 0 otherwise.
func madeOf(r *pb.TxnRequest) int64 {
	for _, c := range r.Compare {
		if relations[c.GetRelation()] == fsm.Equal && len(c.GetRangeEnd()) == 0 &&
			c.GetCreateRevision() > 0 && bytes.Equal(c.GetKey(), r.AwaitTurn.GetKey()) {
			return c.GetCreateRevision()
		}
	}
	return 0
}

// askOf checks and converts what a transaction waits for.
func askOf(a *pb.Await) (*turn.Ask, error) {
	ask := &turn.Ask{
		Key: string(a.Key), Permits: max(a.Permits, 1),
		Skips: a.Beside != nil, Beside: string(a.Beside),
	}
	if bytes.HasPrefix(a.Key, a.Prefix) {
		ask.Prefix = ask.Key[:len(a.Prefix)]
	} else {
		ask.Prefix = string(a.Prefix) // to be refused
	}
	switch {
	case !line.IsPrefix(ask.Prefix):
		return nil, invalid("await_turn: the prefix %q does not end as the prefix of a line, "+
			"in a slash for example", ask.Prefix)
	case !line.IsPlace(ask.Prefix, ask.Key, 1):
		return nil, invalid("await_turn: the key %q is not the prefix %q and the ID of a lease",
			ask.Key, ask.Prefix)
	case a.Permits < 0:
		return nil, invalid("await_turn: permits must not be below 0, but is %d", a.Permits)
	}
	return ask, nil
}

// firstOutcome makes the response of a transaction that waits now if its conditions held. It
// may have been given up; what is left of that comes behind it.
func (t *stream) firstOutcome(q *request, v *fsm.View) *pb.Response {
	if !t.isOpen(q.id) {
		return nil
	}
	r := q.respond(v)
	m := r.GetTxn()
	switch {
	case m.GetSucceeded():
		if m.Turn, r.More = t.turns.begin(q.id, q.await, m.Header.Revision); r.More {
			t.serves(q, t.turns)
			return r
		}
	case m != nil && q.made != 0:
		news := turn.Ended(v.KV, q.await.Key, q.made)
		m.Turn = turnOf(&news)
	}
	if !t.leave(q.id) {
		return nil
	}
	return r
}
