package watch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rig is a running hub whose history is never asked.
type rig struct {
	rev  atomic.Int64
	hub  *Hub[*event]
	got  atomic.Int64 // events that reached the readers
	stop func()
}

func (r *rig) Revision() int64  { return r.rev.Load() }
func (r *rig) Compacted() int64 { return 0 }
func (r *rig) Events(_, _ string, from int64, _ int) ([]*event, int64, error) {
	return nil, from + 1, nil
}

// publish makes one revision and returns how long the writer was held up.
func (r *rig) publish(e *event) time.Duration {
	e.rev = r.rev.Add(1)
	evs := []*event{e}
	start := time.Now()
	r.hub.Publish(e.rev, evs)
	return time.Since(start)
}

// await waits until n events have been read.
func (r *rig) await(n int64, woken <-chan struct{}) {
	for r.got.Load() < n {
		<-woken
	}
}

// newRig starts streams with the given requests; woken gets a token whenever
// got reaches a multiple of every.
func newRig(b *testing.B, every int64, streams [][]Request) (*rig, <-chan struct{}) {
	r := new(rig)
	r.hub = New(func() History[*event] { return r }, Options{})
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = r.hub.Run(ctx) })
	woken := make(chan struct{}, 1)
	for _, requests := range streams {
		s := r.hub.NewStream()
		for _, q := range requests {
			mustWatch(b, s, q)
		}
		all.Go(func() {
			defer s.Close()
			for {
				bt, err := s.Next(ctx)
				if err != nil {
					return
				}
				n := int64(len(bt.Events))
				if n > 0 && (r.got.Add(n)%every) < n {
					select {
					case woken <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	r.stop = func() { cancel(); all.Wait() }
	return r, woken
}

// repeat gives n streams with one watcher each.
func repeat(n int, q func(i int) Request) [][]Request {
	out := make([][]Request, n)
	for i := range out {
		out[i] = []Request{q(i)}
	}
	return out
}

// BenchmarkFanout publishes one event that n streams want and waits until all
// have it. writer-ns is how long Publish held up the writer.
func BenchmarkFanout(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			r, woken := newRig(b, int64(n), repeat(n, func(int) Request { return Request{Key: "k"} }))
			defer r.stop()
			var writer time.Duration
			total := int64(0)
			for b.Loop() {
				writer += r.publish(put("k"))
				total += int64(n)
				r.await(total, woken)
			}
			b.ReportMetric(float64(writer)/float64(b.N), "writer-ns")
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// BenchmarkFanoutBusy is 100 events in flight to 1,000 streams: what is
// delivered when the writer does not wait.
func BenchmarkFanoutBusy(b *testing.B) {
	const n, flight = 1000, 100
	r, woken := newRig(b, n*flight, repeat(n, func(int) Request { return Request{Key: "k"} }))
	defer r.stop()
	var writer time.Duration
	total := int64(0)
	for b.Loop() {
		for range flight {
			writer += r.publish(put("k"))
		}
		total += n * flight
		r.await(total, woken)
	}
	b.ReportMetric(float64(writer)/float64(b.N*flight), "writer-ns")
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "deliveries/s")
}

// BenchmarkRanges publishes events of which each matches one of n range
// watchers on one stream.
func BenchmarkRanges(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprintf("watchers=%d", n), func(b *testing.B) {
			rs := repeat(n, func(i int) Request {
				return Request{Key: fmt.Sprintf("/%06d/", i), End: fmt.Sprintf("/%06d0", i)}
			})
			var all []Request
			for _, q := range rs {
				all = append(all, q...)
			}
			r, woken := newRig(b, 1, [][]Request{all})
			defer r.stop()
			var writer time.Duration
			total := int64(0)
			for b.Loop() {
				writer += r.publish(put(all[total%int64(n)].Key + "x"))
				total++
				r.await(total, woken)
			}
			b.ReportMetric(float64(writer)/float64(b.N), "writer-ns")
		})
	}
}

// BenchmarkDistribute is the cost of the hub's goroutine alone: per event, the
// match and the queueing to n streams that nobody reads meanwhile.
func BenchmarkDistribute(b *testing.B) {
	for _, n := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			r := new(rig)
			r.hub = New(func() History[*event] { return r }, Options{})
			other := r.hub.NewStream()
			mustWatch(b, other, Request{Key: "other"})
			streams := make([]*Stream[*event], n)
			for i := range streams {
				streams[i] = r.hub.NewStream()
				mustWatch(b, streams[i], Request{Key: "k"})
			}
			b.ReportAllocs()
			for b.Loop() {
				r.publish(put("k"))
				r.hub.Distribute()
				for _, s := range streams {
					s.Poll()
				}
			}
		})
	}
}

// BenchmarkHandOver is the contended lock: 16 waiters, each watching for the
// delete of the key before its own, from a past revision. One operation is one
// hand-over.
func BenchmarkHandOver(b *testing.B) {
	st := newStore(Options{})
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = st.hub.Run(ctx) })
	const waiters = 16
	turn := make([]chan int64, waiters)
	for i := range turn {
		turn[i] = make(chan int64, 1)
	}
	s := make([]*Stream[*event], waiters)
	for i := range s {
		s[i] = st.hub.NewStream()
	}
	i := 0
	for b.Loop() {
		key := fmt.Sprintf("lock/%d", i%waiters)
		from := st.write(put(key))
		st.write(del(key))
		w := s[(i+1)%waiters]
		id := mustWatch(b, w, Request{Key: key, From: from, NoPut: true})
		for {
			bt, err := w.Next(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if bt.Kind == Changed {
				break
			}
		}
		if err := w.Cancel(id); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Next(ctx); err != nil {
			b.Fatal(err)
		}
		i++
	}
	cancel()
	all.Wait()
}

// BenchmarkCatchUp is a watcher that reads 10,000 events of history.
func BenchmarkCatchUp(b *testing.B) {
	st := newStore(Options{})
	for range 10000 {
		st.write(put("k"))
	}
	for b.Loop() {
		s := st.hub.NewStream()
		mustWatch(b, s, Request{Key: "k", From: 1})
		n := 0
		for {
			bt, ok := s.Poll()
			if !ok {
				break
			}
			n += len(bt.Events)
		}
		if n != 10000 {
			b.Fatal(n)
		}
		s.Close()
	}
}

// BenchmarkWatch is the coming and going of a watcher beside 10,000 others.
func BenchmarkWatch(b *testing.B) {
	st := newStore(Options{})
	s := st.hub.NewStream()
	for i := range 10000 {
		mustWatch(b, s, Request{Key: fmt.Sprintf("/%06d/", i), End: fmt.Sprintf("/%06d0", i)})
		s.Poll()
	}
	for b.Loop() {
		id := mustWatch(b, s, Request{Key: "/005000/x", End: "/005000/y"})
		if err := s.Cancel(id); err != nil {
			b.Fatal(err)
		}
		s.Poll()
		s.Poll()
	}
}
