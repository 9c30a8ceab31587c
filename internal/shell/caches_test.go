package shell

import (
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// recordingCache is a Cache that records its calls.
type recordingCache struct{ calls []string }

func (c *recordingCache) Opened(term uint64, err error) {
	c.calls = append(c.calls, fmt.Sprintf("opened %d %v", term, err))
}

func (c *recordingCache) Invalidated(i *replica.Invalidation) {
	c.calls = append(c.calls, fmt.Sprintf("drop %d", i.Seq))
}

func (c *recordingCache) Reopen(term uint64) {
	c.calls = append(c.calls, fmt.Sprintf("reopen %d", term))
}

// TestOpenCaches checks that messages are delivered to the owner that last opened a cache. If the
// leader changes to one that does not know the cache, the cache is reopened once.
func TestOpenCaches(t *testing.T) {
	old, last, other := &recordingCache{}, &recordingCache{}, &recordingCache{}
	heir := &recordingCache{} // belongs to a later lease with the same ID
	c := caches{{ID: 7}: {to: last}, {ID: 8}: {to: other}, {ID: 7, Token: 1}: {to: heir, term: 9}}
	c.deliver(&replica.Output{
		Opened: []replica.OpenCache{
			{ID: 7, Owner: old, Err: lease.ErrExpiring}, // opened from the previous stream
			{ID: 6, Owner: old, Term: 3},                // closed in the meantime
			{ID: 7, Owner: last, Term: 3},
			{ID: 8, Owner: other, Err: lease.ErrNotFound},
		},
		Invalidations: []replica.Invalidation{{ID: 7, Seq: 1}, {ID: 8, Seq: 2}, {ID: 9, Seq: 3}},
	})
	if len(c) != 2 {
		t.Errorf("%d caches are open", len(c))
	}
	for _, s := range []replica.Status{
		{Term: 3, Leader: 1}, {Term: 4}, {Term: 4, Leader: 2}, {Term: 5, Leader: 1},
	} {
		before := len(last.calls)
		if c.follow(&s); s.Leader == 0 && len(last.calls) > before {
			t.Errorf("without a leader, it heard %q", last.calls[before:])
		}
	}
	for _, x := range []struct {
		to   *recordingCache
		want []string
	}{
		{old, []string{"opened 0 " + lease.ErrExpiring.Error(), "opened 3 <nil>"}},
		{heir, nil},
		{last, []string{"opened 3 <nil>", "drop 1", "reopen 4"}},
		{other, []string{"opened 0 " + lease.ErrNotFound.Error()}},
	} {
		if !slices.Equal(x.to.calls, x.want) {
			t.Errorf("heard %q, want %q", x.to.calls, x.want)
		}
	}
}

// TestCacheOfStreamThatWasLeft checks that messages from an earlier owner of a cache are ignored.
// An old acknowledgment must not count, since the cache may have read the keys again, and an old
// close must not close the cache.
func TestCacheOfStreamThatWasLeft(t *testing.T) {
	m := lead(t)
	m.propose(&fsm.Grant{
		Terms: lease.Terms{ID: 7, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c", End: "d"}},
	})
	info, _ := m.r.Machine().Lessor().Lookup(7)
	left, last := &recordingCache{}, &recordingCache{}
	say := func(from *recordingCache, mail CacheMail) {
		mail.From = from
		if mail.Of.ID == 0 {
			mail.Of = fsm.Holding{ID: 7, Token: info.Token}
		}
		m.mail.Caches = append(m.mail.Caches, mail)
		m.settle()
	}
	ack := func(seq uint64) CacheMail {
		return CacheMail{Ack: &replica.AckCache{
			ID: 7, Token: info.Token, Term: m.s.Status.Term, Seq: seq, Open: m.s.Status.Term,
		}}
	}
	for _, c := range []*recordingCache{left, last} {
		say(c, CacheMail{Open: &replica.OpenCache{ID: 7, Token: info.Token}})
	}
	say(last, ack(0))
	fill := &replica.Fill{ID: 7, Token: info.Token, Ranges: []keyrange.Range{{Key: "c1"}}}
	m.mail.Reads = append(m.mail.Reads, &replica.Read{Fill: fill})
	m.settle()
	if fill.Term == 0 {
		t.Fatal("the cache was refused what it reads")
	}
	before := len(m.done)
	m.mail.Proposals = append(m.mail.Proposals, &replica.Proposal{Command: &fsm.Put{Key: "c1"}})
	m.settle()
	say(left, ack(1))
	say(left, CacheMail{Closed: true})
	say(left, CacheMail{Of: fsm.Holding{ID: 8}, Closed: true}) // never opened
	if len(m.done) != before || m.s.OpenCaches() != 1 {
		t.Errorf("after messages from an old stream, %d writes are done and %d caches are open",
			len(m.done)-before, m.s.OpenCaches())
	}
	say(last, ack(1))
	if len(m.done) != before+1 {
		t.Errorf("the write is not done; heard %q", last.calls)
	}
	if want := []string{"opened 2 <nil>", "drop 1"}; !slices.Equal(last.calls, want) {
		t.Errorf("heard %q, want %q", last.calls, want)
	}
	if say(last, CacheMail{Closed: true}); m.s.OpenCaches() != 0 {
		t.Errorf("%d caches are open after the last was closed", m.s.OpenCaches())
	}
}

// TestOpenedByLeaderOfBefore checks that a cache is reopened if its open response and a change of
// leader arrive together. Several caches are reopened in order of their tokens.
func TestOpenedByLeaderOfBefore(t *testing.T) {
	s := &Shell{caches: make(caches), Status: replica.Status{Term: 4, Leader: 2}}
	var want, reopened []lease.Token
	for token := range lease.Token(20) {
		to := &reopenedCache{reopen: func() { reopened = append(reopened, token) }}
		s.caches[fsm.Holding{ID: 7, Token: token}] = &cache{to: to}
		s.Out.Opened = append(s.Out.Opened,
			replica.OpenCache{ID: 7, Token: token, Term: 3, Owner: to})
		want = append(want, token)
	}
	if s.DeliverCaches(); !slices.Equal(reopened, want) {
		t.Errorf("reopened tokens %v, want %v", reopened, want)
	}
}

// reopenedCache is a Cache that reports when it is reopened.
type reopenedCache struct {
	recordingCache
	reopen func()
}

func (c *reopenedCache) Reopen(uint64) { c.reopen() }
