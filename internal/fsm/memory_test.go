package fsm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
	planning "leasehold.dev/plan"
	"leasehold.dev/test/tier"
)

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// ways returns the ways in which clients can grow the state. Each function returns the commands of
// its nth step.
func ways() map[string]func(n int) []Command {
	id := func(n int) lease.ID { return lease.ID(rand.New(rand.NewPCG(uint64(n), 1)).Int64()) }
	key := func(n int) string { return fmt.Sprintf("key/%08x", n) }
	grant := func(n int, t lease.Terms) *Grant {
		t.ID, t.TTL = id(n), 60_000
		return &Grant{Terms: t}
	}
	value := func(size int) []byte { return make([]byte, size) }
	once := func(n int, c Command) []Command {
		session := Session{ID: uint64(1 + n/4000), Nonce: 7}
		list := []Command{&Once{session, uint64(n + 1), 0, c}}
		if n%4000 == 0 {
			return append([]Command{&OpenSession{7}}, list...)
		}
		return list
	}
	labels := func(n int) map[string]string {
		m := make(map[string]string)
		for i := range 8 {
			m[fmt.Sprintf("label%d", i)] = fmt.Sprintf("value%d", n)
		}
		return m
	}
	return map[string]func(n int) []Command{
		"empty keys":   func(n int) []Command { return []Command{&Put{Key: key(n)}} },
		"small keys":   func(n int) []Command { return []Command{&Put{Key: key(n), Value: value(24)}} },
		"values":       func(n int) []Command { return []Command{&Put{Key: key(n), Value: value(105)}} },
		"large values": func(n int) []Command { return []Command{&Put{Key: key(n), Value: value(2000)}} },
		"long keys": func(n int) []Command {
			return []Command{&Put{Key: strings.Repeat("k", 1000) + key(n)}}
		},
		"versions of a key": func(int) []Command { return []Command{&Put{Key: "k", Value: value(24)}} },
		"versions of keys":  func(n int) []Command { return []Command{&Put{Key: key(n % 5000)}} },
		"tombstones": func(n int) []Command {
			return []Command{&Put{Key: key(n)}, &DeleteRange{Key: key(n)}}
		},
		"a key made again and again": func(int) []Command {
			return []Command{&Put{Key: "k"}, &DeleteRange{Key: "k"}}
		},
		"leases": func(n int) []Command { return []Command{grant(n, lease.Terms{})} },
		"names": func(n int) []Command {
			return []Command{grant(n, lease.Terms{Name: key(n), Owner: "owner", RequestID: key(n)})}
		},
		"secrets": func(n int) []Command {
			return []Command{grant(n, lease.Terms{Secret: lease.Secret{1}})}
		},
		"labels": func(n int) []Command {
			return []Command{grant(n, lease.Terms{Labels: labels(n)})}
		},
		"a key on each lease": func(n int) []Command {
			return []Command{grant(n, lease.Terms{}), &Put{Key: key(n), Lease: id(n)}}
		},
		"keys on a lease": func(n int) []Command {
			put := &Put{Key: key(n), Lease: id(0)}
			if n > 0 {
				return []Command{put}
			}
			return []Command{grant(0, lease.Terms{}), put}
		},
		"long keys on a lease, made again": func(n int) []Command {
			long := strings.Repeat("k", 1000) + key(n)
			return []Command{
				grant(n, lease.Terms{}), &Put{Key: long}, &DeleteRange{Key: long},
				&Compact{Revision: int64(3*n + 2)}, &Put{Key: strings.Clone(long), Lease: id(n)},
			}
		},
		"holds": func(n int) []Command {
			g := grant(n, lease.Terms{Owner: key(n / 100)})
			g.Holds = []keyrange.Range{{Key: key(n), End: key(n + 1)}, {Key: "x" + key(n)}}
			return []Command{g}
		},
		"orphans": func(n int) []Command {
			g := grant(n, lease.Terms{Owner: key(n / 100)})
			g.Holds = []keyrange.Range{{Key: key(n), End: key(n + 1)}, {Key: "x" + key(n)}}
			return []Command{g, &Revoke{ID: id(n)}}
		},
		"sessions": func(int) []Command { return []Command{&OpenSession{7}} },
		"answers":  func(n int) []Command { return once(n, &Put{Key: "k"}) },
		"answers with pairs": func(n int) []Command {
			return once(n, &Put{Key: "k", Value: value(500), PrevKV: true})
		},
		"answers of transactions": func(n int) []Command {
			ops := []Op{{Draw: true}, {Delete: &DeleteRange{Key: "k"}}, {Range: &Range{Key: "k"}}}
			return once(n, &Txn{Then: ops})
		},
	}
}

// TestMemory checks that the state uses at most an eighth more memory than it reports, however
// clients grow it.
func TestMemory(t *testing.T) {
	n := tier.Budget(3000, 12_000)
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			m := New(Config{LeaseEvents: 8})
			m.silences.recent.most = 8
			index := uint64(0)
			m.Begin(1, 1)
			before, empty := heapInUse(), m.View().Bytes.Sum()
			for i := range n {
				entry := AppendEntry(nil, 1)
				for _, c := range way(i) {
					entry = AppendCommand(entry, c)
				}
				groups, err := DecodeEntry(entry)
				if err != nil {
					t.Fatal(err)
				}
				for _, g := range groups {
					for _, c := range g.Commands {
						index++
						m.Begin(index, 1)
						if r := m.Apply(c); r.Err != nil {
							t.Fatal(r.Err)
						}
						m.TakeChanges()
						m.ReuseChanges()
					}
				}
			}
			for m.Scrub(1000) {
			}
			m.holds.changed = nil
			says := m.View().Bytes.Sum() - empty
			takes := heapInUse() - before
			t.Logf("%s: %d bytes each, says %d: %.2f", name, takes/int64(n), says/int64(n),
				float64(takes)/float64(says))
			if takes > says+says/8 {
				t.Errorf("takes %d bytes, says %d", takes, says)
			}
			runtime.KeepAlive(m)
		})
	}
}

// TestPlanned checks that a lease, and a 32-byte key with a 32-byte value, use exactly the space
// that leasehold plan capacity predicts.
func TestPlanned(t *testing.T) {
	m := New(Config{})
	empty := m.View().Bytes.Sum()
	mustApply(t, m, &Grant{Terms: lease.Terms{ID: 1, TTL: 5000}})
	one := m.View().Bytes.Sum()
	text := strings.Repeat("k", 32)
	mustApply(t, m, &Put{Key: text, Value: []byte(text), Lease: 1})
	two, c := m.View().Bytes.Sum(), planning.DocumentedCosts(3)
	if float64(one-empty) != c.LeaseState || float64(two-one) != c.KeyState {
		t.Errorf("a lease takes %d, its key %d; planned are %v, %v", one-empty, two-one,
			c.LeaseState, c.KeyState)
	}
}
