package watch

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestHistoryInTurns checks that if many streams have watchers that start in the past, one fewer
// than GOMAXPROCS of these streams read history at the same time, but at least one. Otherwise,
// everything else in the process would have to wait. Every stream still receives all events.
func TestHistoryInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, revisions = 50, 3000
		s := newStore(Options{})
		for range revisions {
			s.commit(put("k"))
		}
		var mu sync.Mutex
		var readers, most int
		v := *s.cur.Load()
		v.reading = func() {
			mu.Lock()
			readers++
			most = max(most, readers)
			mu.Unlock()
			<-time.After(time.Millisecond)
			mu.Lock()
			readers--
			mu.Unlock()
		}
		s.cur.Store(&v)
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				stream := s.hub.NewStream()
				defer stream.Close()
				if _, err := stream.Watch(Request{Key: "k", From: 1}); err != nil {
					t.Error(err)
					return
				}
				for got := 0; got < revisions; {
					b, err := stream.Next(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					got += len(b.Events)
				}
			})
		}
		all.Wait()
		if want := max(1, runtime.GOMAXPROCS(0)-1); most != want {
			t.Errorf("%d streams read history at a time, want %d", most, want)
		}
	})
}
