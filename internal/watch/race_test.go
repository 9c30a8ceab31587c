package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestRace (W1) is a concurrent version of the model test. It runs a writer that never waits, the
// hub's Run, and clients, some of them slow, that watch, cancel, request progress and resume while
// history is being compacted. Every client checks each batch.
func TestRace(t *testing.T) {
	st := newStore(Options{
		Backlog: Limit{Events: 200}, Queue: Limit{Events: 30}, Batch: Limit{Events: 10},
	})
	ctx, stop := context.WithCancel(t.Context())
	var run, clients sync.WaitGroup
	run.Go(func() { _ = st.hub.Run(ctx) })
	done, written := context.WithCancel(t.Context())
	for i := range 8 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 4))
			if err := roam(done, st, rng); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	rng := rand.New(rand.NewPCG(9, 4))
	for i := range 20000 {
		evs := make([]*event, rng.IntN(4))
		for j := range evs {
			evs[j] = put(fmt.Sprintf("%c%d", 'a'+rng.IntN(4), rng.IntN(10)))
		}
		rev := st.write(evs...)
		if i%500 == 0 {
			st.compact(rev - 1000)
		}
	}
	written()
	clients.Wait()
	stop()
	run.Wait()
	if s := st.hub.Stats(); s.Streams != 0 || s.Watchers != 0 || st.hub.interest.Load() != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// roam is one client of TestRace. When done ends, it waits until all its watchers have received the
// last revision.
func roam(done context.Context, st *store, rng *rand.Rand) error {
	s := st.hub.NewStream()
	defer s.Close()
	c := &client{s: s, pupils: map[any]*pupil{}}
	for tag := 0; done.Err() == nil; tag++ {
		key := string(rune('a' + rng.IntN(4)))
		r := Request{Key: key, End: key + "5", Tag: tag}
		switch rng.IntN(3) {
		case 0:
			r.From = max(1, st.cur.Load().rev-int64(rng.IntN(1500)))
		case 1:
			r.End = "\x00"
		}
		// If the watcher starts at the current revision, Created reports where it starts.
		p := &pupil{req: r, next: r.From}
		c.pupils[r.Tag] = p
		id, err := s.Watch(r)
		if err != nil {
			return err
		}
		p.id = id
		s.RequestProgress(int64(rng.IntN(int(id)+2)) - 1)
		for range rng.IntN(40) {
			b, err := s.Next(done)
			if err != nil {
				break // done has ended
			}
			if err := learn(st, c, b); err != nil {
				return err
			}
		}
		for tag, p := range c.pupils {
			if rng.IntN(3) == 0 && !p.leaving {
				p.leaving = true
				if err := s.Cancel(p.id); err != nil {
					return fmt.Errorf("cancel %v: %w", tag, err)
				}
			}
		}
	}
	return finish(st, c)
}

func learn(st *store, c *client, b Batch[*event]) error {
	p := c.pupils[b.Tag]
	if b.Kind == Created && p != nil && p.req.From == 0 {
		p.next = b.Revision + 1
	}
	return c.check(st.cur.Load(), b)
}

// finish requests progress, which must arrive after all events.
func finish(st *store, c *client) error {
	for {
		c.s.RequestProgress(AllWatchers)
		b, err := c.s.Next(context.Background())
		if err != nil {
			return err
		}
		if err := learn(st, c, b); err != nil {
			return err
		}
		v := st.cur.Load()
		if b.Kind != Progress || b.ID != AllWatchers || b.Revision < v.rev {
			continue
		}
		for _, p := range c.pupils {
			if !p.leaving && (!p.created || p.next != v.rev+1) {
				return errors.New("progress came before the rest")
			}
		}
		return nil
	}
}
