package sim

import (
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// watcher is a client's watch on one process. It includes the stream at the member and the messages
// to the client, which stay in order unless the connection breaks.
type watcher struct {
	p      *process
	t      *thread
	rec    *Watch
	stream *watch.Stream[*api.Event]
	guard  *api.Guard
	last   Time // arrival of the last batch
	ended  bool // no more batches are sent
	next   int64
	still  Time // the stream is not read before this instant
	// inbox holds the batches that have arrived but have not been processed by the client.
	inbox  []delivery
	closed bool // the client has detected the end of the watch
}

// delivery is a batch and the member's applied index when it sent the batch.
type delivery struct {
	watch.Batch[*api.Event]
	index uint64
}

// needed returns the permission required for a watch.
func needed(key, end string) *api.Need {
	return &api.Need{Reads: []keyrange.Range{{Key: key, End: end}}}
}

// refuse ends the watch because the client lacks the permission.
func (x *watcher) refuse(why error) {
	w := x.t.c.w
	if x.ended {
		return
	}
	x.ended = true
	w.at(max(w.now+w.exp(w.p.Delay), x.last+1), func() {
		if !x.closed && !x.t.dead {
			x.close()
			x.rec.Err = why
			x.t.wake(x.t.token)
		}
	})
}

// watch opens a watch at the client's member. It returns nil on failure.
func (t *thread) watch(key, end string, from int64, resumes int) *watcher {
	c, w := t.c, t.c.w
	x := &watcher{t: t, next: from, rec: &Watch{
		ID: len(w.h.Watches), Client: c.id, Member: c.at, At: w.now, Key: key, End: end,
		From: from, Resumes: resumes, Closed: Never, Caller: c.user,
	}}
	w.h.Watches = append(w.h.Watches, x.rec)
	t.watching = x
	w.tracef("client %d: watch %d of [%s, %s) from %d at member %d", c.id, x.rec.ID, key, end, from,
		c.at)
	if c.cut {
		x.breakOff(w.now + w.p.Timeout)
		return x
	}
	w.after(w.p.Delay/4+w.exp(w.p.Delay), func() {
		p := w.members[x.rec.Member-1].proc
		if p == nil {
			x.breakOff(w.now)
			return
		}
		x.p = p
		p.watchers = append(p.watchers, x) // the connection breaks when the process ends
		p.deliver(func() {
			if x.ended {
				return
			}
			x.guard = c.guard(p)
			if err := x.guard.Enter(0, needed(key, end)); err != nil {
				w.cover["watch denied"]++
				x.refuse(err)
				return
			}
			x.stream = p.hub.NewStream()
			if _, err := x.stream.Watch(watch.Request{Key: key, End: end, From: from}); err != nil {
				panic(err)
			}
			p.poll()
		})
	})
	return x
}

// poll sends all batches that are ready.
func (p *process) poll() {
	live := p.watchers[:0]
	for _, x := range p.watchers {
		if x.stream != nil {
			x.drain()
		}
		if x.ended {
			if x.stream != nil {
				x.stream.Close()
			}
			continue
		}
		live = append(live, x)
	}
	clear(p.watchers[len(live):])
	p.watchers = live
}

// drain sends the stream's batches until none is ready or the stream blocks.
func (x *watcher) drain() {
	w := x.p.w
	for !x.ended && x.still <= w.now {
		b, ok := x.stream.Poll()
		if err := x.guard.ReviewOne(); err != nil || x.guard.Refused(0) {
			w.cover["watch ended with the right to it"]++
			x.refuse(err)
			return
		}
		if !ok {
			return
		}
		x.send(b)
		if w.p.Lag > 0 && !w.injector.calm && w.chance(3) {
			x.stand(w.exp(w.p.Lag))
		}
	}
}

// stand blocks the stream for d, as if the client had stopped reading and the connection's buffers
// were full. The member continues, and events accumulate.
func (x *watcher) stand(d Time) {
	w := x.p.w
	x.still = w.now + d
	w.cover["watch stood still"]++
	w.at(x.still, func() {
		if !x.p.dead {
			x.p.deliver(x.p.poll)
		}
	})
}

// send delivers a batch to the client.
func (x *watcher) send(b watch.Batch[*api.Event]) {
	w := x.t.c.w
	if x.t.dead {
		x.ended = true
		return
	}
	if x.t.c.cut || x.closed {
		x.breakOff(w.now + w.exp(w.p.Timeout))
		return
	}
	x.last = max(x.last, w.now+w.p.Delay/4+w.exp(w.p.Delay))
	index := x.p.view.Index
	w.at(x.last, func() {
		if x.closed || x.t.dead {
			return
		}
		if x.t.c.cut {
			x.breakOff(w.now + w.exp(w.p.Timeout))
			return
		}
		x.inbox = append(x.inbox, delivery{b, index})
		x.t.wake(x.t.token)
	})
}

// breakOff ends the watch. The client detects this at the given instant.
func (x *watcher) breakOff(at Time) {
	if x.ended {
		return
	}
	x.ended = true
	x.t.c.w.at(at, func() {
		if !x.closed && !x.t.dead {
			x.close()
			x.t.wake(x.t.token)
		}
	})
}

// broken handles the end of the member's process.
func (x *watcher) broken(silent bool) {
	w := x.t.c.w
	at := w.now + w.exp(w.p.Delay)
	if silent {
		at += w.p.Timeout
	}
	x.breakOff(max(at, x.last+1))
}

// close runs when the client detects the end of the watch or gives up.
func (x *watcher) close() {
	x.closed, x.ended = true, true
	x.rec.Closed = x.t.c.w.now
}

// receive waits for the next batch until a deadline in true time, and records the batch in the
// history.
func (x *watcher) receive(deadline Time) {
	t, w := x.t, x.t.c.w
	for len(x.inbox) == 0 && !x.closed && w.now < deadline {
		token := t.token
		w.at(deadline, func() { t.wake(token) })
		t.park()
	}
	inbox := x.inbox
	x.inbox = nil
	for _, b := range inbox {
		x.take(b)
	}
}

func (x *watcher) take(b delivery) {
	w := x.t.c.w
	switch b.Kind {
	case watch.Changed, watch.Progress:
		d := Delivery{At: w.now, Watch: x.rec.ID, Revision: b.Revision, Index: b.index}
		d.Progress = b.Kind == watch.Progress
		for _, e := range b.Events {
			d.Events = append(d.Events, *e.Change())
		}
		x.next = b.Revision + 1
		w.h.Deliveries = append(w.h.Deliveries, d)
	case watch.Cancelled:
		x.rec.Compacted = b.Compacted
		x.close()
		x.rec.Err = b.Err
	}
}

// observer keeps watching a range and resumes after broken connections and compactions.
func (t *thread) observer() {
	c, w := t.c, t.c.w
	key, end := "", "\x00"
	switch w.rng.IntN(4) {
	case 0:
		key, end = "r", "s"
	case 1:
		key, end = "k", "l"
	case 2:
		key, end = "r0", ""
	default:
		key, end = "\x00", "\x00"
	}
	from, resumes := int64(1), -1
	for {
		if from < 1 {
			from = 1
		}
		x := t.watch(key, end, from, resumes)
		until := w.now + w.exp(20*w.p.Think)
		for !x.closed && w.now < until {
			x.receive(until)
		}
		if !x.closed {
			x.close()
			w.cover["watch closed"]++
		}
		from, resumes = x.next, x.rec.ID
		switch {
		case denial(x.rec.Err):
			t.think()
		case x.rec.Err == mvcc.ErrCompacted:
			w.cover["watch compacted"]++
			from, resumes = x.rec.Compacted, -1
		case w.chance(8):
			from, resumes = c.old(), -1
		case x.next > x.rec.From:
			w.cover["watch resumed"]++
		}
		t.move()
	}
}

// old returns a past revision, which may be compacted.
func (c *client) old() int64 { return 1 + c.w.rng.Int64N(c.w.oracle.machine.View().KV.Revision()) }
