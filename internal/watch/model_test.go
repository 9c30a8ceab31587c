package watch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/test/tier"
)

// pupil is the state of one watcher as known to its client.
type pupil struct {
	id      int64
	req     Request
	leaving bool // the client has canceled the watcher and is waiting for the response
	created bool
	next    int64 // first revision not completely received
	atleast int64 // lowest progress revision allowed after a request; 0 if none was made
}

// check compares a batch of events with the expected events.
func (p *pupil) check(v *view, b Batch[*event]) error {
	if !p.created {
		return errors.New("events before created")
	}
	last := b.Events[len(b.Events)-1].rev
	if b.Revision < last || b.Revision < p.next {
		return fmt.Errorf("batch at revision %d ends with %d, next was %d", b.Revision, last, p.next)
	}
	if want := v.truth(p.req, p.next, b.Revision); !slices.Equal(b.Events, want) {
		return fmt.Errorf("from %d to %d: got %v, want %v", p.next, b.Revision, b.Events, want)
	}
	p.next = b.Revision + 1
	return nil
}

// client is a stream together with the state known to its client.
type client struct {
	s       *Stream[*event]
	pupils  map[any]*pupil // by tag, because IDs are reused
	atleast int64          // like pupil.atleast, for requests about all watchers
	refused int
}

// take polls the stream once and checks the batch, if any.
func (c *client) take(v *view) (bool, error) {
	b, ok := c.s.Poll()
	if !ok {
		return false, nil
	}
	return true, c.check(v, b)
}

func (c *client) check(v *view, b Batch[*event]) error {
	if b.Revision > v.rev {
		return fmt.Errorf("revision %d is not there yet: %+v", b.Revision, b)
	}
	p := c.pupils[b.Tag]
	if (p == nil) != (b.ID == AllWatchers) || p != nil && p.id != b.ID {
		return fmt.Errorf("batch of no watcher: %+v", b)
	}
	switch {
	case b.Kind == Changed:
		return p.check(v, b)
	case b.Kind == Created && b.Err != nil:
		c.refused--
	case b.Kind == Created:
		p.created = true
		if p.req.From == 0 && p.next != b.Revision+1 {
			return fmt.Errorf("created at %d, want %d", b.Revision, p.next-1)
		}
	case b.Kind == Cancelled:
		delete(c.pupils, b.Tag)
		if b.Err != nil && (b.Err != errCompacted || b.Compacted < p.next) {
			return fmt.Errorf("cancelled without need: %+v, next %d", b, p.next)
		}
	case b.ID == AllWatchers:
		if b.Revision < c.atleast {
			return fmt.Errorf("progress %d, want %d", b.Revision, c.atleast)
		}
		for _, p := range c.pupils {
			if err := p.progress(v, b.Revision); err != nil {
				return fmt.Errorf("watcher %d: %w", p.id, err)
			}
		}
	default:
		if b.Revision < p.atleast {
			return fmt.Errorf("progress %d, want %d", b.Revision, p.atleast)
		}
		return p.progress(v, b.Revision)
	}
	return nil
}

// progress checks a progress revision. It must not be ahead of events still to come, nor behind
// events already received, because the client may resume from it.
func (p *pupil) progress(v *view, rev int64) error {
	if !p.created || p.leaving {
		return nil // the watcher has no position to resume from
	}
	if want := v.truth(p.req, p.next, rev); len(want) != 0 {
		return fmt.Errorf("progress %d, but not sent: %v (issue 15220)", rev, want)
	}
	if rev < p.next-1 {
		return fmt.Errorf("progress %d is behind %d", rev, p.next-1)
	}
	p.next = rev + 1
	return nil
}

// model drives a hub from a single goroutine, with choices made by pick.
type model struct {
	pick    func(n int) int
	st      *store
	clients []*client
	tags    int
}

// tight sets limits low enough to be reached constantly.
var tight = Options{
	Backlog: Limit{Events: 12, Bytes: 100},
	Queue:   Limit{Events: 5, Bytes: 40},
	Batch:   Limit{Events: 3, Bytes: 25},
	Queues:  150,
}

func (m *model) key() string { return string(rune('a' + m.pick(6))) }

func (m *model) events() []*event {
	evs := make([]*event, m.pick(5))
	for i := range evs {
		evs[i] = &event{key: m.key(), del: m.pick(3) == 0, size: 1 + m.pick(12)}
	}
	return evs
}

func (m *model) request() Request {
	rev := int(m.st.cur.Load().rev)
	m.tags++
	r := Request{Key: m.key(), Tag: m.tags, ID: int64(m.pick(3) * m.pick(9))}
	switch m.pick(4) {
	case 0:
		r.End = "\x00"
	case 1:
		r.End = string(rune(r.Key[0] + byte(m.pick(4)))) // the range may be empty
	}
	switch m.pick(5) {
	case 0, 1:
		r.From = int64(1 + m.pick(rev))
	case 2:
		r.From = int64(rev + m.pick(4))
	}
	r.NoPut, r.NoDelete = m.pick(4) == 0, m.pick(4) == 0
	return r
}

func (m *model) watch(c *client) error {
	r := m.request()
	_, used := c.s.watchers[r.ID]
	id, err := c.s.Watch(r)
	switch {
	case r.End != "" && r.End != "\x00" && r.End <= r.Key:
		if err != ErrEmptyRange {
			return fmt.Errorf("empty range: %v", err)
		}
	case r.ID != 0 && used:
		if err != ErrDuplicate {
			return fmt.Errorf("duplicate: %v", err)
		}
	case err != nil:
		return err
	default:
		p := &pupil{id: id, req: r, next: r.From}
		if r.From == 0 {
			p.next = m.st.cur.Load().rev + 1
		}
		c.pupils[r.Tag] = p
		return nil
	}
	c.refused++
	c.s.Reject(err)
	return nil
}

// step performs one random action.
func (m *model) step() error {
	c := m.clients[m.pick(len(m.clients))]
	rev := m.st.cur.Load().rev
	switch m.pick(16) {
	case 0, 1, 2, 3:
		m.st.write(m.events()...)
	case 4, 5:
		m.st.hub.Distribute()
	case 6, 7, 8:
		for range m.pick(6) {
			if ok, err := c.take(m.st.cur.Load()); err != nil || !ok {
				return err
			}
		}
	case 9, 10:
		return m.watch(c)
	case 11:
		id := int64(m.pick(12))
		w, known := c.s.watchers[id]
		if err := c.s.Cancel(id); (err == nil) != known {
			return fmt.Errorf("cancel %d: %v", id, err)
		}
		if known {
			c.pupils[w.tag].leaving = true
		}
	case 12:
		m.st.compact(rev - int64(m.pick(20)))
	case 13:
		// A snapshot replaces the store, so it can add several revisions that are never published.
		for range m.pick(3) {
			m.st.commit(m.events()...)
		}
		m.st.hub.Restore(m.st.cur.Load().rev)
	case 14:
		id := int64(m.pick(8)) - 1
		if w := c.s.watchers[id]; w != nil && c.s.progressPending < maxPending {
			if p := c.pupils[w.tag]; p.atleast == 0 {
				p.atleast = rev
			}
		}
		if id == AllWatchers && c.atleast == 0 {
			c.atleast = rev
		}
		c.s.RequestProgress(id)
	case 15:
		if m.pick(8) == 0 {
			c.s.Close()
			*c = client{s: m.st.hub.NewStream(), pupils: map[any]*pupil{}}
		}
	}
	return m.check()
}

// check verifies the hub's internal invariants, which hold between any two steps.
func (m *model) check() error {
	h := m.st.hub
	interest := len(h.waits)
	taken, queued := int64(0), int64(0)
	for _, c := range m.clients {
		interest += len(c.s.watchers)
		taken += c.s.taken
		seen := map[*watcher[*event]]bool{}
		for _, n := range c.s.agenda.items[c.s.agenda.head:] {
			if n.kind == Changed && seen[n.w] {
				return fmt.Errorf("watcher %d is listed twice", n.w.id)
			}
			seen[n.w] = seen[n.w] || n.kind == Changed
		}
		for id, w := range c.s.watchers {
			if w.due() && !w.listed {
				return fmt.Errorf("watcher %d is due and not listed", id)
			}
			if n := whole(w.queue, h.opts.Queue); n < len(w.queue) {
				return fmt.Errorf("watcher %d has %d events queued", id, len(w.queue))
			}
			if b := size(w.queue); b != w.bytes {
				return fmt.Errorf("watcher %d has %d bytes, counts %d", id, b, w.bytes)
			}
			if w.share < 0 || w.share > int64(w.bytes) {
				return fmt.Errorf("watcher %d counts %d of %d bytes", id, w.share, w.bytes)
			}
			queued += w.share
		}
	}
	if taken != h.taken.Load() || queued != h.queued.Load() || queued > h.opts.Queues {
		return fmt.Errorf("the hub counts %d and %d bytes, the streams have %d and %d",
			h.taken.Load(), h.queued.Load(), taken, queued)
	}
	if int64(interest) != h.interest.Load() {
		return fmt.Errorf("interest is %d, want %d", h.interest.Load(), interest)
	}
	return nil
}

// run performs steps, and then checks that every watcher receives all its events.
func (m *model) run(o Options, steps int) error {
	m.st = newStore(o)
	for range 3 {
		c := &client{s: m.st.hub.NewStream(), pupils: map[any]*pupil{}}
		m.clients = append(m.clients, c)
	}
	for i := range steps {
		if err := m.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	m.st.hub.Distribute()
	v := m.st.cur.Load()
	for i, c := range m.clients {
		for {
			ok, err := c.take(v)
			if err != nil {
				return fmt.Errorf("client %d: %w", i, err)
			}
			if !ok {
				break
			}
		}
		for _, p := range c.pupils {
			if missing := v.truth(p.req, p.next, v.rev); len(missing) != 0 {
				return fmt.Errorf("client %d watcher %d never got %v", i, p.id, missing)
			}
		}
		if c.refused != 0 {
			return fmt.Errorf("client %d: %d refusals not told", i, c.refused)
		}
		c.s.Close()
	}
	if s := m.st.hub.Stats(); s != (Stats{}) || m.st.hub.interest.Load() != 0 {
		return fmt.Errorf("left behind: %+v", s)
	}
	return nil
}

// TestModel (W1) checks that every watcher receives exactly the events of its range, or an error
// that names a compaction past its position. The test writes, watches, cancels, compacts, restores
// and leaves events unread, in random order.
func TestModel(t *testing.T) {
	for seed := range uint64(tier.Budget(300, 1500)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &model{pick: rng.IntN}
		o := tight
		if seed%3 == 0 {
			o = Options{}
		}
		if err := m.run(o, 300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzModel is TestModel with the choices made by the fuzzer.
func FuzzModel(f *testing.F) {
	f.Add([]byte("\x00\x09\x00\x03\x01\x04\x06\x05"))
	f.Fuzz(func(t *testing.T, data []byte) {
		steps := len(data)
		m := &model{pick: func(n int) int {
			if len(data) == 0 || n <= 0 {
				return 0
			}
			c := int(data[0]) % n
			data = data[1:]
			return c
		}}
		if err := m.run(tight, steps); err != nil {
			t.Fatal(err)
		}
	})
}
