package native

import (
	"bytes"
	"sync"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/ticket"
)

// waits contains the requests of one stream that are waiting in wait queues. It is a feed. Only the
// sending goroutine may call begin, drop and next. Any goroutine may call end.
type waits struct {
	store *store
	wake  func()

	mu    sync.Mutex // guards the fields below, and the news of all waiters
	open  map[uint64]*waiter
	ready []*waiter // waiters with news to send, each at most once
}

// waiter is a waiting request. It implements waitqueue.Waiter.
type waiter struct {
	feed  *waits
	id    uint64
	entry *waitqueue.Entry

	// The feed's mu guards the fields below.
	queued  bool // whether the waiter is in ready
	hasNews bool
	news    waitqueue.News
	ended   bool // canceled or no longer permitted
	why     error
}

func newWaits(s *store, wake func()) *waits {
	return &waits{store: s, wake: wake, open: make(map[uint64]*waiter)}
}

// begin starts waiting for a key as of a revision. It returns the state of the ticket, or nil if
// the key is not in any queue. It also reports whether notifications will follow.
func (w *waits) begin(id uint64, a *waitqueue.Ask, asOf int64) (_ *pb.Ticket, more bool) {
	x := &waiter{feed: w, id: id}
	entry, news := w.store.node.WaitQueues().Wait(*a, asOf, x)
	if entry == nil {
		return ticketOf(&news), false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x.entry = entry
	w.open[id] = x
	return ticketOf(&news), true
}

// end implements feed. The last response is sent with the next message.
func (w *waits) end(id uint64) { w.refuse(id, nil) }

// refuse implements feed.
func (w *waits) refuse(id uint64, why error) {
	x := w.forget(id)
	if x == nil {
		return
	}
	x.entry.Leave()
	w.mu.Lock()
	defer w.mu.Unlock()
	x.ended, x.why = true, why
	x.queueLocked()
	if why != nil {
		w.wake()
	}
}

// drop ends a request without sending another response.
func (w *waits) drop(id uint64) {
	x := w.forget(id)
	if x == nil {
		return
	}
	x.entry.Leave()
	w.mu.Lock()
	x.hasNews = false
	w.mu.Unlock()
}

func (w *waits) forget(id uint64) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.open[id]
	delete(w.open, id)
	return x
}

// close ends all requests when the stream ends.
func (w *waits) close() {
	w.mu.Lock()
	list := w.open
	w.open = nil
	w.mu.Unlock()
	for _, x := range list {
		x.entry.Leave()
	}
}

// Notify implements waitqueue.Waiter. A pending "ready" is replaced by "gone".
func (x *waiter) Notify(news waitqueue.News) {
	w := x.feed
	w.mu.Lock()
	x.hasNews, x.news = true, news
	x.queueLocked()
	w.mu.Unlock()
	w.wake() // even if other waiters are ready, because they may be waiting for the next message
}

// queueLocked adds the waiter to ready.
func (x *waiter) queueLocked() {
	if !x.queued {
		x.queued = true
		x.feed.ready = append(x.feed.ready, x)
	}
}

// next implements feed.
func (w *waits) next() *pb.Response {
	for {
		w.mu.Lock()
		x := w.popLocked()
		if x == nil {
			w.mu.Unlock()
			return nil
		}
		hasNews, ended, news := x.hasNews, x.ended, x.news
		x.hasNews = false
		w.mu.Unlock()
		switch {
		case ended:
			r := &pb.Response{Id: x.id}
			if x.why != nil {
				r = errorOf(x.why, api.ReadReason(x.why))
				r.Id = x.id
			}
			return r
		case !hasNews:
			continue
		case news.State == waitqueue.Gone:
			w.drop(x.id)
		}
		return w.response(x.id, &news)
	}
}

// response creates a response with a ticket in a single allocation.
func (w *waits) response(id uint64, news *waitqueue.News) *pb.Response {
	var out struct {
		response pb.Response
		body     pb.Response_Txn
		message  pb.TxnResponse
		header   pb.Header
		ticket   pb.Ticket
	}
	w.store.fillHeader(&out.header, w.store.node.View(), news.Revision)
	fillTicket(&out.ticket, news)
	out.message.Header, out.message.Ticket = &out.header, &out.ticket
	out.body.Txn = &out.message
	out.response.Id, out.response.More = id, news.State != waitqueue.Gone
	out.response.Body = &out.body
	return &out.response
}

// popLocked removes the first waiter from ready and returns it. It returns nil if there is none.
func (w *waits) popLocked() *waiter {
	if len(w.ready) == 0 {
		return nil
	}
	x := w.ready[0]
	w.ready[0] = nil
	w.ready = w.ready[1:]
	x.queued = false
	return x
}

// ticketOf converts news to a ticket. It returns nil if the ticket does not exist.
func ticketOf(n *waitqueue.News) *pb.Ticket {
	if n.State == waitqueue.None {
		return nil
	}
	m := new(pb.Ticket)
	fillTicket(m, n)
	return m
}

// fillTicket is ticketOf with an empty message provided by the caller.
func fillTicket(m *pb.Ticket, n *waitqueue.News) {
	m.CreateRevision = n.Created
	switch n.State {
	case waitqueue.Waiting:
		m.State = pb.Ticket_STATE_WAITING
	case waitqueue.Ready:
		m.State = pb.Ticket_STATE_READY
		if n.After != "" {
			m.PreviousKey = []byte(n.After)
		}
	case waitqueue.Gone:
		m.State, m.Cause, m.Lease = pb.Ticket_STATE_GONE, eventCauses[n.Why], int64(n.Lease)
		if n.Unknown {
			m.Cause = pb.Event_CAUSE_UNKNOWN
		}
	}
}

// waitingJob returns the job of a transaction on a stream. Such a transaction may wait after it is
// applied.
func (t *stream) waitingJob(q *request, r *pb.TxnRequest) (job, error) {
	j, err := t.txnJob(t.ctx, r, t.by)
	if a := r.GetWait(); a != nil && err == nil {
		t.needFeeds()
		if q.wait, err = waitRequestOf(a); err == nil {
			a := t.authorizer(t.ctx)
			err = waitNeeds(q.wait).Check(a.State, a.Caller)
		}
		q.made = createRevisionOf(r)
	}
	return j, err
}

// waitNeeds returns the permissions needed to wait in a queue. A waiter learns about other keys in
// the queue, so it must be allowed to read them.
func waitNeeds(a *waitqueue.Ask) *api.Need {
	return &api.Need{Reads: []keyrange.Range{keyrange.OfPrefix(a.Prefix)}}
}

// createRevisionOf returns the create revision that a transaction requires for the key it waits
// for. It returns 0 if the transaction does not require one.
func createRevisionOf(r *pb.TxnRequest) int64 {
	for _, c := range r.Compare {
		if relations[c.GetRelation()] == fsm.Equal && len(c.GetRangeEnd()) == 0 &&
			c.GetCreateRevision() > 0 && bytes.Equal(c.GetKey(), r.Wait.GetKey()) {
			return c.GetCreateRevision()
		}
	}
	return 0
}

// waitRequestOf checks and converts a Wait.
func waitRequestOf(a *pb.Wait) (*waitqueue.Ask, error) {
	ask := &waitqueue.Ask{
		Key: string(a.Key), Permits: max(a.Permits, 1),
		Skips: a.IgnoredValue != nil, IgnoredValue: string(a.IgnoredValue),
	}
	if bytes.HasPrefix(a.Key, a.Prefix) {
		ask.Prefix = ask.Key[:len(a.Prefix)]
	} else {
		ask.Prefix = string(a.Prefix) // rejected below
	}
	switch {
	case !ticket.IsPrefix(ask.Prefix):
		return nil, invalid("wait: the prefix %q must be the prefix of a queue, such as one "+
			"that ends with a slash", ask.Prefix)
	case !ticket.Is(ask.Prefix, ask.Key, 1):
		return nil, invalid("wait: the key %q is not the prefix %q followed by a lease ID",
			ask.Key, ask.Prefix)
	case a.Permits < 0:
		return nil, invalid("wait: permits must not be negative: %d", a.Permits)
	}
	return ask, nil
}

// firstOutcome creates the response to a transaction that starts to wait if its conditions hold. If
// the request was canceled in the meantime, its last response will follow.
func (t *stream) firstOutcome(q *request, v *fsm.View) *pb.Response {
	if !t.isOpen(q.id) {
		return nil
	}
	r := q.respond(v)
	m, f := r.GetTxn(), t.feeds.Load() // f is not nil, because waitingJob has created the feeds
	switch {
	case m.GetSucceeded():
		if err := f.guard.Enter(q.id, waitNeeds(q.wait)); err != nil {
			m.WaitRefused = api.ErrorMessage(err, api.ReadReason(err))
			break
		}
		if m.Ticket, r.More = f.waits.begin(q.id, q.wait, m.Header.Revision); r.More {
			t.serves(q, f.waits)
			return r
		}
		f.guard.Leave(q.id)
	case m != nil && !m.Succeeded && q.made != 0:
		news := waitqueue.Ended(v.KV, q.wait.Key, q.made)
		m.Ticket = ticketOf(&news)
	}
	if !t.leave(q.id) {
		return nil
	}
	return r
}
