package fsm

import (
	"testing"

	"leasehold.dev/lease"
)

// frequent returns the commands that are most common in logs.
func frequent() map[string]Command {
	const id lease.ID = 0x4b06a0efa7b451eb
	put := &Put{Key: "lock/0042/4b06a0efa7b451eb", Value: make([]byte, 32), Lease: id}
	session := Session{ID: 77, Nonce: 1 << 60}
	return map[string]Command{
		"put":       &Put{Key: "nodes/a", Value: make([]byte, 128)},
		"attached":  put,
		"once":      &Once{Session: session, Number: 1 << 20, Settled: 1<<20 - 5, Command: put},
		"delete":    &DeleteRange{Key: put.Key},
		"grant":     &Grant{Terms: lease.Terms{ID: id, TTL: 10_000}},
		"described": &Grant{Terms: lease.Terms{ID: id, TTL: 10_000, Name: "db/primary", Owner: "a"}},
		"revoke":    &Revoke{ID: id},
		"lock": &Txn{
			Compare: []Compare{{Key: put.Key, Target: TargetCreate}},
			Then:    []Op{{Put: put}, {Range: &Range{Key: "lock/0042/", End: "lock/00420"}}},
			Else:    []Op{{Range: &Range{Key: put.Key}}},
		},
		"checkpoint": &Checkpoint{Term: 6, Leases: []lease.Checkpoint{
			{ID: id, Token: 1 << 20, Remaining: 6000, Stamp: 1}, {ID: id + 9, Token: 9, Stamp: 1},
		}},
		"expire": &Expire{Term: 6, Leases: []lease.Due{{ID: id, Token: 1 << 20, Stamp: 1}}},
	}
}

// BenchmarkEncode measures encoding 64 commands of one type into an entry, and reports the entry's
// size.
func BenchmarkEncode(b *testing.B) {
	for name, c := range frequent() {
		b.Run(name, func(b *testing.B) {
			var entry []byte
			for b.Loop() {
				entry = AppendEntry(entry[:0], 1)
				for range 64 {
					entry = AppendCommand(entry, c)
				}
			}
			b.ReportMetric(float64(len(entry)), "bytes")
		})
	}
}

// BenchmarkDecode measures decoding such an entry.
func BenchmarkDecode(b *testing.B) {
	for name, c := range frequent() {
		b.Run(name, func(b *testing.B) {
			entry := AppendEntry(nil, 1)
			for range 64 {
				entry = AppendCommand(entry, c)
			}
			var r Reader
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Decode(entry); err != nil {
					b.Fatal(err)
				}
				r.Release()
			}
		})
	}
}
