package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// cache is a client's cache, controlled by the test.
type cache struct {
	c     *cluster
	p     *peer // the member with its stream
	id    lease.ID
	token lease.Token
	term  uint64 // the term in which it was last opened
}

// caching starts a cluster led by member 1.
func caching(t testing.TB) *cluster {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	return c
}

// hold grants a lease with a hold on the keys in ["c", "d"), and opens its cache.
func (c *cluster) hold(p *peer, id lease.ID, ttl lease.TTL) *cache {
	c.t.Helper()
	c.propose(p, &fsm.Grant{
		Terms: lease.Terms{ID: id, TTL: ttl, Owner: fmt.Sprint("owner ", id)},
		Holds: []keyrange.Range{{Key: "c", End: "d"}},
	}, "hold", fmt.Sprint(id))
	c.run()
	info, _ := p.r.lessor.Lookup(id)
	k := &cache{c: c, p: p, id: id, token: info.Token}
	k.open()
	return k
}

// succeed kills the leader and elects another member.
func (c *cluster) succeed(id uint64) {
	c.t.Helper()
	c.check(c.members[1].r.Transfer(id))
	c.run()
	c.kill(c.members[1])
	for _, n := range c.ids() {
		c.members[n].r.Advance(c.now)
	}
	c.run()
	if !c.members[id].r.Status().Primary {
		c.t.Fatalf("member %d does not lead", id)
	}
}

// open opens the cache in the current term.
func (k *cache) open(has ...string) {
	k.c.t.Helper()
	if text := k.ask(has...); !strings.HasPrefix(text, "open in term ") {
		k.c.t.Fatalf("cache %d: %s", k.id, text)
	}
	k.confirm()
}

// ask requests to open the cache and returns the answer, without confirming it to the leader.
func (k *cache) ask(has ...string) string {
	k.c.t.Helper()
	o := OpenCache{ID: k.id, Token: k.token, Owner: k.c.ask(k.p, "open", fmt.Sprint(k.id))}
	for _, key := range has {
		o.Has = append(o.Has, keyrange.Range{Key: key})
	}
	k.p.r.Advance(k.c.now)
	k.p.r.OpenCache(o)
	k.c.run()
	text := k.c.asks[o.Owner.(string)]
	fmt.Sscanf(text, "open in term %d", &k.term)
	return text
}

// confirm confirms to the leader that the cache is open.
func (k *cache) confirm() {
	k.p.r.AckCache(AckCache{ID: k.id, Token: k.token, Open: k.term})
	k.c.run()
}

// fill reads a key and reports whether it can be cached.
func (k *cache) fill(key string) bool {
	k.c.t.Helper()
	q := &Read{
		Fill:  &Fill{ID: k.id, Token: k.token, Ranges: []keyrange.Range{{Key: key}}},
		Owner: k.c.ask(k.p, "fill", key),
	}
	k.p.r.Advance(k.c.now)
	k.p.r.Read(q)
	k.c.run()
	if k.c.asks[q.Owner.(string)] == "" {
		k.c.t.Fatalf("no answer to a fill of %q", key)
	}
	return q.Fill.Term != 0 && q.Fill.Term == k.term
}

// mustFill reads a key and fails the test if it cannot be cached.
func (k *cache) mustFill(key string) {
	k.c.t.Helper()
	if !k.fill(key) {
		k.c.t.Fatalf("cache %d may not keep %q", k.id, key)
	}
}

// invalidations returns the invalidations received since the last call.
func (k *cache) invalidations() (drop []string, last Invalidation) {
	var rest []Invalidation
	for _, n := range k.p.invalidations {
		if n.ID != k.id || n.Token != k.token {
			rest = append(rest, n)
			continue
		}
		for _, r := range n.Drop {
			drop = append(drop, r.Key)
		}
		last = n
	}
	k.p.invalidations = rest
	slices.Sort(drop)
	return slices.Compact(drop), last
}

// ack acknowledges the received invalidations. It fails the test unless they cover exactly these
// keys.
func (k *cache) ack(want ...string) {
	k.c.t.Helper()
	drop, last := k.invalidations()
	if !slices.Equal(drop, want) {
		k.c.t.Fatalf("cache %d must drop %q, want %q", k.id, drop, want)
	}
	k.p.r.Advance(k.c.now)
	k.p.r.AckCache(AckCache{
		ID: k.id, Token: k.token, Term: last.Term, Seq: last.Seq, Open: k.term,
	})
	k.c.run()
}

// put proposes a put. The returned function returns its outcome, or "" if it is still pending.
func (c *cluster) put(p *peer, key string, id lease.ID) func() string {
	return c.command(p, &fsm.Put{Key: key, Value: []byte("v"), Lease: id})
}

func (c *cluster) command(p *peer, cmd fsm.Command) func() string {
	name := c.ask(p, fmt.Sprintf("%T", cmd))
	p.r.Advance(c.now)
	p.r.Propose(&Proposal{Command: cmd, Owner: name})
	c.run()
	return func() string { return c.asks[name] }
}

// want fails the test unless the outcome begins with want; "" means no outcome.
func (c *cluster) want(what string, outcome func() string, want string) {
	c.t.Helper()
	if got := outcome(); !strings.HasPrefix(got, want) || want == "" && got != "" {
		c.t.Fatalf("%s: %q, want %q", what, got, want)
	}
}
