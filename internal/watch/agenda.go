package watch

import (
	"math"
)

// This file contains the internals of a stream. The hub adds entries to the agenda, and Poll
// processes them.

// offer adds live events to a watcher of the stream. sharers is the number of watchers in its
// group, which share the events. If lost is not 0, events from that revision on will not be
// offered.
func (s *Stream[E]) offer(w *watcher[E], evs []E, bytes, sharers int, lost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.accept(evs, bytes, sharers)
	if lost != 0 {
		w.lose(lost)
	}
	s.listLocked(w)
}

// post adds an entry to the agenda.
func (s *Stream[E]) post(n notice[E]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushLocked(n)
}

func (s *Stream[E]) pushLocked(n notice[E]) {
	if s.closed {
		return
	}
	s.agenda.push(n)
	if s.agenda.len() == 1 {
		s.signal()
	}
}

func (s *Stream[E]) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// listLocked adds a watcher to the agenda if it is due and not already listed.
func (s *Stream[E]) listLocked(w *watcher[E]) {
	if w.dead || w.listed || !w.due() {
		return
	}
	w.listed = true
	s.pushLocked(notice[E]{kind: Changed, w: w})
}

// dropLocked ends a watcher within the stream. The caller must also remove it from the hub.
func (s *Stream[E]) dropLocked(w *watcher[E]) {
	delete(s.watchers, w.id)
	w.dead, w.queue = true, nil
	w.count(-w.share)
}

// serveLocked returns one batch of a watcher that is due. It returns false if there turn out to be
// no events. It releases mu while it reads.
func (s *Stream[E]) serveLocked(w *watcher[E]) (Batch[E], bool) {
	if w.dead {
		return Batch[E]{}, false
	}
	b := Batch[E]{Kind: Changed, ID: w.id, Tag: w.tag}
	if w.next > w.goal && len(w.queue) == 0 && w.lost != 0 {
		// As in Watch, this is where history and live events meet.
		w.resync(s.h.current().Revision())
	}
	switch {
	case w.next <= w.goal:
		view, from, to := s.h.current(), w.next, w.goal
		evs, next, err := s.readUnlocked(w, view, from, to)
		if w.dead {
			return Batch[E]{}, false
		}
		if err != nil {
			s.failLocked(w)
			b.Kind, b.Err = Cancelled, err
			b.Revision, b.Compacted = view.Revision(), view.Compacted()
			return b, true
		}
		b.Events, w.next = evs, next
	case len(w.queue) > 0:
		b.Events = w.take(s.h.opts.Batch)
	}
	w.listed = false
	s.listLocked(w)
	b.Revision = w.sent(s.h.live.Load())
	if len(b.Events) == 0 {
		return b, false
	}
	w.complete = b.Revision
	return b, true
}

// fewEvents is how many events are read at a time while other streams are waiting to read history.
const fewEvents = 128

// readUnlocked releases mu while it reads, and acquires it again even after a panic, because the
// caller may recover. Streams take turns reading.
func (s *Stream[E]) readUnlocked(
	w *watcher[E], view History[E], from, to int64,
) ([]E, int64, error) {
	s.mu.Unlock()
	defer s.mu.Lock()
	limit := s.h.opts.Batch
	select {
	case s.h.reading <- struct{}{}:
	default:
		s.h.reading <- struct{}{}
		limit.Events = min(limit.Events, fewEvents)
	}
	defer func() { <-s.h.reading }()
	return w.read(view, from, to, limit)
}

// failLocked ends a watcher after an error from history. It releases mu, because the hub's lock
// must be acquired first.
func (s *Stream[E]) failLocked(w *watcher[E]) {
	s.dropLocked(w)
	s.freeLocked(w.cost())
	s.mu.Unlock()
	s.h.mu.Lock()
	s.h.forgetLocked(w)
	s.h.mu.Unlock()
	s.mu.Lock()
}

// progressLocked answers a progress request, postpones it, or drops it because its watcher has
// ended.
func (s *Stream[E]) progressLocked(n notice[E]) (Batch[E], bool) {
	concerned := s.watchers
	if n.w != nil {
		if n.w.dead {
			s.progressPending--
			return Batch[E]{}, false
		}
		concerned = map[int64]*watcher[E]{n.id: n.w}
	}
	live, sent, need := s.h.live.Load(), int64(math.MaxInt64), n.rev
	for _, w := range concerned {
		sent = min(sent, w.sent(live))
		need = max(need, w.need())
	}
	if len(concerned) == 0 {
		sent = live
	}
	switch {
	case sent >= need:
		s.progressPending--
		b := Batch[E]{Kind: Progress, ID: n.id, Revision: sent}
		for _, w := range concerned {
			w.complete = sent
		}
		if n.w != nil {
			b.Tag = n.w.tag
		}
		return b, true
	case need > live:
		n.rev = need
		s.mu.Unlock()
		s.h.await(s, n)
		s.mu.Lock()
	default:
		// A watcher is due, so it must be ahead of this request on the agenda.
		if s.agenda.len() == 0 {
			panic("watch: a watcher is due but not on the agenda")
		}
		s.pushLocked(n)
	}
	return Batch[E]{}, false
}
