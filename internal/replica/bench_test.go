package replica

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// BenchmarkCommit measures commands from proposal to result on one member, without the disk or
// responses. Commands are numbered like those from leasehold.v1 clients, and each entry is followed
// by a view.
func BenchmarkCommit(b *testing.B) {
	for _, w := range []struct {
		name string
		do   func(*client, int) fsm.Command
	}{{"put", (*client).put}, {"lock", (*client).lock}, {"grant", (*client).grant}} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", w.name, n), func(b *testing.B) {
				benchmarkCommit(b, n, w.do)
			})
		}
	}
}

// client creates commands before the timer starts, because a real member gets them from a decoder.
type client struct {
	session fsm.Session
	number  uint64
	lease   lease.ID
	value   []byte
}

func (c *client) once(command fsm.Command) fsm.Command {
	c.number++
	const window = 128
	return &fsm.Once{
		Session: c.session, Number: c.number, Settled: max(c.number, window) - window,
		Command: command,
	}
}

func (c *client) put(i int) fsm.Command {
	return c.once(&fsm.Put{Key: fmt.Sprintf("key/%08d", i%1000), Value: c.value})
}

// lock alternately joins and leaves wait queues, like client/lock.
func (c *client) lock(i int) fsm.Command {
	key := fmt.Sprintf("lock/%04d/%x", i/2%64, c.lease)
	if i%2 == 1 {
		return c.once(&fsm.Txn{
			Compare: []fsm.Compare{{Key: key, Target: fsm.TargetLease, Number: int64(c.lease)}},
			Then:    []fsm.Op{{Delete: &fsm.DeleteRange{Key: key}}},
		})
	}
	all := fmt.Sprintf("lock/%04d/", i/2%64)
	return c.once(&fsm.Txn{
		Compare: []fsm.Compare{
			{Key: key, Target: fsm.TargetCreate},
			{Key: all, End: all + "\xff", Target: fsm.TargetCreate},
		},
		Then: []fsm.Op{{Put: &fsm.Put{Key: key, Lease: c.lease, MaxKeys: 10_000}}, {Draw: true}},
		Else: []fsm.Op{{Range: &fsm.Range{Key: all, End: all + "\xff"}}},
	})
}

// grant alternately grants and revokes leases.
func (c *client) grant(i int) fsm.Command {
	if i%2 == 1 {
		return c.once(&fsm.Revoke{ID: c.lease + lease.ID(i)})
	}
	return c.once(&fsm.Grant{Terms: lease.Terms{
		ID: c.lease + lease.ID(i+1), TTL: 60_000, Owner: "somebody",
	}})
}

func benchmarkCommit(b *testing.B, batch int, do func(*client, int) fsm.Command) {
	m := lead(b)
	c := &client{lease: 1 << 40, value: make([]byte, 128)}
	c.session = m.do(&fsm.OpenSession{Nonce: 1 << 60}).Value.(fsm.Session)
	m.grant(c.lease, 3600_000)
	const prepared = 1024
	proposals := make([]*Proposal, prepared)
	answered := 0
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		if n%prepared == 0 {
			b.StopTimer()
			tidy(b, m)
			for i := range proposals {
				proposals[i] = &Proposal{Command: do(c, n+i)}
			}
			b.StartTimer()
		}
		for _, p := range proposals[n%prepared:][:batch] {
			m.r.Propose(p)
		}
		for ended := false; !ended; {
			out := m.r.Take()
			for _, p := range out.Proposals {
				if p.Err != nil || p.Result.Err != nil {
					b.Fatal(p.Err, p.Result.Err)
				}
				answered++
			}
			if out.Applied {
				m.m.View()
			}
			for _, a := range out.Append {
				commit(b, m, a)
			}
			ended = len(out.Append) == 0
		}
	}
	if answered < b.N {
		b.Fatalf("%d answers to %d commands", answered, b.N)
	}
}

// commit makes a message durable.
func commit(b *testing.B, m *member, a *raftpb.Message) {
	if err := m.log.Append(a.GetEntries()); err != nil {
		b.Fatal(err)
	}
	m.r.Persisted(a)
}

// tidy truncates the log and, sometimes, the history.
func tidy(b *testing.B, m *member) {
	err := m.log.Compact(m.m.Index() - 1)
	if err != nil && !errors.Is(err, raft.ErrCompacted) {
		b.Fatal(err)
	}
	v := m.m.View().KV
	if v.Revision()-v.Compacted() < 20_000 {
		return
	}
	if r := m.do(&fsm.Compact{Revision: v.Revision()}); r.Err != nil {
		b.Fatal(r.Err)
	}
	for m.m.Scrub(1 << 20) {
	}
}
