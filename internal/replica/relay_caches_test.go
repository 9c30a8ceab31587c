package replica

import (
	"errors"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// saying returns ranges that take so many bytes in a message of caches.
func saying(n int) []keyrange.Range {
	return []keyrange.Range{{Key: strings.Repeat("k", n-8)}}
}

// TestCacheWordsFillMessage: a message takes what caches say until it is full to the byte, and not
// more. With a full one no round goes, though nothing is left to be said: the round's own ranges
// would make the message too large.
func TestCacheWordsFillMessage(t *testing.T) {
	const ack, open = 64, 40 // bytes of each beside its ranges
	for _, x := range []struct {
		name        string
		acks, opens []int // bytes of their ranges
		sent        int
		full        bool
	}{
		{"full with an ack", []int{maxCacheBytes - ack, 100}, nil, 1, true},
		{"a byte left behind an ack", []int{maxCacheBytes - ack - 1, 100}, nil, 2, true},
		{"full with an open", nil, []int{maxCacheBytes - open, 100}, 1, true},
		{"a byte left behind an open", nil, []int{maxCacheBytes - open - 1, 100}, 2, true},
		{"full with all", []int{100}, []int{maxCacheBytes - 100 - ack - open}, 2, true},
		{"a byte left", []int{100}, []int{maxCacheBytes - 101 - ack - open}, 2, false},
	} {
		var c cacheRelay
		for _, n := range x.acks {
			c.acks = append(c.acks, AckCache{Dropped: saying(n)})
		}
		for _, n := range x.opens {
			c.opens = append(c.opens, OpenCache{Has: saying(n)})
		}
		var m Forward
		last, full := c.fill(&m, 7, 1)
		if n := len(m.Acks) + len(m.Opens); n != x.sent || full != x.full || last != 7+uint64(n) {
			t.Errorf("%s: %d are sent, the last is %d, full %v", x.name, n, last, full)
		}
	}
}

// TestCachesAskAgain: an OpenCache without an answer goes again when it is time, as many to a
// message as there is room for.
func TestCachesAskAgain(t *testing.T) {
	const open = 40
	for _, x := range []struct{ first, passed, want int }{
		{maxCacheBytes - open, 10, 1},
		{maxCacheBytes - open - 1, 10, 2},
		{100, 10, 2},
		{100, 9, 0},
	} {
		c := cacheRelay{opens: []OpenCache{{Has: saying(x.first)}, {Has: saying(100)}}}
		c.fill(&Forward{}, 0, 5)
		c.fill(&Forward{}, 1, 5)
		var again, twice Forward
		c.again(&again, 5+uint64(x.passed), 10)
		c.again(&twice, 5+uint64(x.passed), 10)
		if n := len(again.Opens); n != x.want || x.want == 2 && len(twice.Opens) != 0 {
			t.Errorf("%d bytes, after %d ticks: %d go again, and %d at once", x.first, x.passed, n,
				len(twice.Opens))
		}
	}
}

// TestOpenHasOneAnswer: an OpenCache is answered once: by the leader, with the term only if it is
// open, or, sent or not, that no leader was found in time.
func TestOpenHasOneAnswer(t *testing.T) {
	var out output
	c := cacheRelay{opens: []OpenCache{{ID: 1}, {ID: 2}, {ID: 3, born: 5}, {ID: 4, born: 5}}}
	c.fill(&Forward{}, 0, 1)
	c.opens = []OpenCache{{ID: 5, born: 5}, {ID: 6}}
	c.opened(&out, &Reply{Term: 9, Opened: []Opened{
		{Number: 2, Code: codeOf(lease.ErrNotFound)}, {Number: 4}, {Number: 4}, {Number: 99},
	}})
	c.expire(&out, func(born uint64) bool { return born < 5 })
	c.expire(&out, func(born uint64) bool { return born < 5 })
	want := []struct {
		id   lease.ID
		term uint64
		err  error
	}{{2, 0, lease.ErrNotFound}, {4, 9, nil}, {6, 0, ErrNoLeader}, {1, 0, ErrNoLeader}}
	if len(out.Opened) != len(want) || len(c.asked) != 1 || len(c.opens) != 1 {
		t.Fatalf("answered %+v, kept %+v", out.Opened, c)
	}
	for i, w := range want {
		if o := out.Opened[i]; o.ID != w.id || o.Term != w.term || !errors.Is(o.Err, w.err) {
			t.Errorf("answer %d: %+v", i, o)
		}
	}
}
