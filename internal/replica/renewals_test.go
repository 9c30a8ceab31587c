package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// together returns a batch of renewals without tokens.
func together(ids ...lease.ID) *Renewals {
	return &Renewals{IDs: ids, TTLs: make([]lease.TTL, len(ids)), Owner: "together"}
}

// outcomes returns the outcome of each renewal in b, or "" if it has not been answered.
func (m *member) outcomes(b *Renewals) []string {
	m.t.Helper()
	out := make([]string, len(b.IDs))
	answer := func(place int, text string) {
		if out[place] != "" {
			m.t.Errorf("lease %d: answered %q, then %q", b.IDs[place], out[place], text)
		}
		out[place] = text
	}
	if i := slices.Index(m.together, b); i >= 0 {
		kept := 0
		for place, ttl := range b.TTLs {
			if ttl > 0 {
				kept++
				answer(place, fmt.Sprint("together ", ttl))
			}
		}
		if kept != b.Kept || kept == 0 || slices.Contains(m.together[i+1:], b) {
			m.t.Errorf("%d of %d renewed, in %d answers", kept, b.Kept, len(m.together))
		}
	}
	for id, list := range m.renewals {
		for _, n := range list {
			switch {
			case n.Owner != b.Owner:
			case b.IDs[n.Place] != id:
				m.t.Errorf("lease %d at position %d, want %d", id, n.Place, b.IDs[n.Place])
			case n.Err != nil:
				answer(n.Place, n.Err.Error())
			default:
				answer(n.Place, fmt.Sprint(n.TTL))
			}
		}
	}
	return out
}

func (m *member) wantOutcomes(b *Renewals, want ...string) {
	m.t.Helper()
	if got := m.outcomes(b); !slices.Equal(got, want) {
		m.t.Errorf("outcomes %q, want %q", got, want)
	}
}

func (m *member) token(id lease.ID) lease.Token {
	info, _ := m.m.Lessor().Lookup(id)
	return info.Token
}

// renewAll renews leases in one batch and returns the names of the requests.
func (c *cluster) renewAll(p *peer, ids ...lease.ID) (names []string) {
	p.r.Advance(c.now)
	for _, id := range ids {
		names = append(names, c.ask(p, "renew all", fmt.Sprint(id)))
	}
	p.r.RenewAll(&Renewals{IDs: ids, TTLs: make([]lease.TTL, len(ids)), Owner: names})
	return names
}

// nameOf returns the name of a renewal request.
func nameOf(n *Renewal) string {
	if names, ok := n.Owner.([]string); ok {
		return names[n.Place]
	}
	return n.Owner.(string)
}

func (c *cluster) answerTogether(out Output) {
	for _, b := range out.Together {
		kept := 0
		for i, ttl := range b.TTLs {
			if ttl > 0 {
				c.answer(b.Owner.([]string)[i], fmt.Sprintf("ttl %d", ttl))
				kept++
			}
		}
		if kept != b.Kept || kept == 0 {
			c.t.Errorf("%d renewed, Kept returns %d", kept, b.Kept)
		}
	}
}

// TestRenewAllMixed checks that renewals covered by one promise are answered together (T15). Leases
// that no longer exist (T7), belong to another incarnation (T28), are expiring (T5) or have a
// checkpoint (rule 6) are answered separately and do not delay the rest.
func TestRenewAllMixed(t *testing.T) {
	const gone = "lease: not found"
	m := lead(t)
	for id := range lease.ID(6) {
		m.grant(id+1, 9000)
	}
	m.pass(3000)
	for _, id := range []lease.ID{1, 4, 6} {
		m.renew(id)
	}
	m.pass(2000)
	m.do(&fsm.Revoke{ID: 2})
	m.grant(2, 1000)
	if info, _ := m.m.Lessor().Lookup(5); info.Remaining == 0 {
		t.Fatal("a silent lease has no checkpoint")
	}
	m.now += 1500
	m.r.Advance(m.now)
	m.take() // the expiry of lease 2 has been proposed and is being synced
	b := together(1, 2, 77, 4, 5, 6, 1)
	b.Tokens = []lease.Token{0, m.token(2), 0, m.token(4) + 100, m.token(5), m.token(6), 0}
	clear(m.renewals)
	m.r.RenewAll(b)
	m.take()
	m.wantOutcomes(b, "together 9000", "", gone, gone, "", "together 9000", "together 9000")
	m.settle()
	m.wantOutcomes(b, "together 9000", gone, gone, gone, "9000", "together 9000", "together 9000")
	if info, _ := m.m.Lessor().Lookup(5); info.Remaining != 0 {
		t.Errorf("acknowledged with its checkpoint: %+v", info)
	}
	none := together(77, 78)
	none.Owner = "none"
	m.r.RenewAll(none)
	m.settle()
	m.wantOutcomes(none, gone, gone)
}

// TestRenewAllLooksAgain checks that each lease is validated again if anything changed since the
// promise (T6, L3). A revoked lease is not found, and a new TTL or token takes effect.
func TestRenewAllLooksAgain(t *testing.T) {
	m := lead(t)
	for id := range lease.ID(5) {
		m.grant(id+1, 5000)
	}
	b := together(1, 2, 3, 4, 5, 99, 5)
	b.Tokens = []lease.Token{0, m.token(2), 0, m.token(4), 0, 0, m.token(5) + 100}
	for _, c := range []fsm.Command{
		&fsm.Revoke{ID: 1}, &fsm.ChangeTTL{ID: 2, Token: m.token(2), TTL: 3000},
		&fsm.HandOver{ID: 3, Token: m.token(3)}, &fsm.HandOver{ID: 4, Token: m.token(4)},
	} {
		m.r.Propose(&Proposal{Command: c})
	}
	m.take()
	m.persist() // committed; applied in the next step, together with the renewals
	m.r.RenewAll(b)
	m.settle()
	m.wantOutcomes(b,
		"lease: not found", "together 3000", "5000", "lease: not found", "together 5000",
		"lease: not found", "lease: not found")
	b = together(3)
	b.Owner = "none is left"
	m.r.Propose(&Proposal{Command: &fsm.Revoke{ID: 3}})
	m.take()
	m.persist()
	m.r.RenewAll(b)
	m.settle()
	m.wantOutcomes(b, "lease: not found")
	if slices.Contains(m.together, b) {
		t.Error("a batch without a success was answered together")
	}
}

// TestRenewAllAtLostLeader checks that no promise is released before its confirm round. A deposed
// leader drops its promises, and the next leader gets their requests (rule 4).
func TestRenewAllAtLostLeader(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	for id := range lease.ID(3) {
		c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: id + 1, TTL: 60_000}}, "grant",
			fmt.Sprint(id))
	}
	c.run()
	for _, id := range []uint64{2, 3} {
		c.cut[link2{1, id}], c.cut[link2{id, 1}] = true, true
	}
	names := c.renewAll(c.members[1], 1, 2, 3, 4)
	c.run()
	for _, name := range names {
		if c.asks[name] != "" {
			t.Fatalf("%s: %q without a quorum", name, c.asks[name])
		}
	}
	c.pass(1000) // the other members now consider it dead
	next := c.members[3]
	if !next.r.primary {
		next = c.members[2]
		c.check(next.r.Campaign())
		c.run()
	}
	if !next.r.primary {
		t.Fatal("no leader")
	}
	c.propose(next, &fsm.Revoke{ID: 2}, "revoke")
	c.run()
	clear(c.cut)
	c.pass(500)
	want := []string{"ttl 60000", "lease: not found", "ttl 60000", "lease: not found"}
	for i, name := range names {
		if c.asks[name] != want[i] {
			t.Errorf("%s: %q, want %q", name, c.asks[name], want[i])
		}
	}
}

// TestRenewAllElsewhere checks that a follower's clients are answered through the leader. A leader
// that is not yet primary delays them until it is.
func TestRenewAllElsewhere(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 60_000}}, "grant")
	c.run()
	for _, id := range []uint64{2, 1} {
		names := c.renewAll(c.members[id], 1, 9)
		c.run()
		if a, b := c.asks[names[0]], c.asks[names[1]]; a != "ttl 60000" || b != "lease: not found" {
			t.Errorf("at member %d: %q and %q", id, a, b)
		}
	}
	m := start(t)
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	m.take()
	b := together(1)
	m.r.RenewAll(b)
	m.take()
	m.wantOutcomes(b, "")
	m.settle()
	m.wantOutcomes(b, "lease: not found")
}

// TestRenewAllParks checks that a lease whose cache has a pending invalidation is renewed only
// after the acknowledgment, while the rest of its batch is renewed immediately (C1, T15).
func TestRenewAllParks(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 5000)
	c.hold(c.members[1], 2, 5000)
	k.mustFill("c1")
	w := c.put(c.members[3], "c1", 0)
	c.want("before the acknowledgement", w, "")
	names := c.renewAll(c.members[1], 1, 2)
	c.run()
	if c.asks[names[0]] != "" || c.asks[names[1]] != "ttl 5000" {
		t.Errorf("%q and %q", c.asks[names[0]], c.asks[names[1]])
	}
	k.ack("c1")
	c.want("afterwards", w, "revision")
	if got := c.asks[names[0]]; got != "ttl 5000" {
		t.Errorf("after the acknowledgement: %q", got)
	}
}

// TestRenewAllRefused checks that a full relay rejects each renewal that does not fit.
func TestRenewAllRefused(t *testing.T) {
	m := start(t, 2)
	m.r.relay.asks.renewals = make([]Renewal, maxForwarded-1)
	b := together(1, 2)
	m.r.RenewAll(b)
	out := m.r.Take()
	if n := out.Renewals; len(n) != 1 || !errors.Is(n[0].Err, ErrOverloaded) || n[0].Place != 1 {
		t.Errorf("%+v", n)
	}
}

// finish runs steps until every command has its outcome.
func (m *member) finish() {
	for m.settle(); m.r.Status().Pending > 0; m.settle() {
	}
}
