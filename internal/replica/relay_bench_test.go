package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// pump runs a leader and a follower until nothing is in flight. All messages are encoded and
// decoded. It returns the number of renewals answered at the follower.
func (c *cluster) pump() (answered int) {
	for busy := true; busy; {
		busy = false
		for _, id := range []uint64{2, 1} {
			p := c.members[id]
			p.r.Advance(c.now)
			in := p.inbox
			p.inbox = nil
			for _, m := range in {
				c.check(p.r.Step(m))
			}
			out := p.r.Take()
			for _, m := range out.Send {
				d, err := DecodeMessage(m.From, m.To, m.AppendTo(make([]byte, 0, m.Size())))
				c.check(err)
				c.arrive(d)
			}
			for i := range out.Renewals {
				c.check(out.Renewals[i].Err)
			}
			answered += len(out.Renewals)
			for _, b := range out.Together {
				answered += b.Kept
			}
			busy = busy || len(in)+len(out.Send) > 0
		}
	}
	return answered
}

// BenchmarkRelayAll repeatedly renews 100,000 leases in batches, through the follower in a cluster
// of two members. One operation is one lease renewal, including the work of both members.
func BenchmarkRelayAll(b *testing.B) {
	for _, batch := range []int{1, 2, 5, 100, 5_000} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) { relayAll(b, batch) })
	}
}

func relayAll(b *testing.B, batch int) {
	const leases = 100_000
	c := newCluster(b, 1, 2)
	c.check(c.members[1].r.Campaign())
	c.run()
	ids := make([]lease.ID, leases)
	for i := range ids {
		ids[i] = lease.ID(uint64(i+1) * 0x9E3779B97F4A7C15 >> 1)
		c.members[1].r.Propose(&Proposal{
			Command: &fsm.Grant{Terms: lease.Terms{ID: ids[i], TTL: 3600_000}}, Owner: fmt.Sprint(i),
		})
	}
	for range 20 {
		for _, id := range c.ids() {
			p := c.members[id]
			c.persist(p)
			for _, m := range p.inbox {
				c.check(p.r.Step(m))
			}
			p.inbox = nil
			out := p.r.Take()
			p.appends = append(p.appends, out.Append...)
			for _, m := range out.Send {
				c.send(m)
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		c.members[2].r.RenewAll(together(ids[n%leases:][:batch]...))
		if got := c.pump(); got != batch {
			b.Fatalf("%d renewed", got)
		}
	}
}
