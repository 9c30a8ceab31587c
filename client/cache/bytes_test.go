package cache_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// journal records log output.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *journal) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *journal) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestLongKeys checks that a cache reports everything it has dropped even if the report exceeds the
// size of one message, and that the stream survives. Later writes by another client then do not
// have to wait.
func TestLongKeys(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		var log journal
		mine := inprocess.Connect(t, client.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, cl.endpoints()...)
		c, other := open(t, mine, "k/", cache.Options{TTL: time.Minute}), connect(t, cl.endpoints()...)
		key := func(i int) string { return fmt.Sprintf("k/%0*d", 16<<10, i) }
		const n = 200
		for i := range n {
			put(t, other, key(i), "v")
		}
		eventually(t, "the cache has all keys", func() bool {
			for i := range n {
				value(t, c, key(i))
			}
			return c.Stats().Entries == n
		})
		before := c.Stats().Invalidations
		p := store.Prefix("k/")
		must[store.DeleteResult](t)(mine.Delete(timeout(t), store.Delete{Key: p.Key, End: p.End}))
		for i := range n {
			put(t, other, key(i), "w")
		}
		if got := value(t, c, key(n-1)); got != "w" {
			t.Errorf("the cache returned %q, want w", got)
		}
		s := c.Stats()
		if s.Reopened != 0 || s.Invalidations != before || strings.Contains(log.String(), "no member") {
			t.Errorf("stats %+v, log %.1000s", s, log.String())
		}
	})
}
