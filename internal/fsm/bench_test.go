package fsm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"leasehold.dev/lease"
)

// filled returns a machine with n leases with random IDs, each with one key.
func filled(n int) *Machine {
	m := New(Config{})
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		id := lease.ID(rng.Int64())
		m.Begin(uint64(i+1), 1)
		m.Apply(&Grant{Terms: lease.Terms{ID: id, TTL: 60_000}})
		m.Apply(&Put{Key: fmt.Sprintf("key/%016x", rng.Uint64()), Value: make([]byte, 64), Lease: id})
		m.TakeChanges()
	}
	return m
}

// BenchmarkApplyPut measures one put, decoded from an entry as it is stored in the log, with up to
// a million other keys.
func BenchmarkApplyPut(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := filled(n)
			entry := encode(&Put{Key: "key/x", Value: make([]byte, 128)})
			index := m.Index()
			b.ReportAllocs()
			for b.Loop() {
				index++
				m.Begin(index, 1)
				groups, err := DecodeEntry(entry)
				if err != nil {
					b.Fatal(err)
				}
				m.Apply(groups[0].Commands[0])
				m.TakeChanges()
			}
		})
	}
}

// BenchmarkPutBy measures a put of a new key followed by the same put, on a lease with many keys,
// for an anonymous caller and for a user.
func BenchmarkPutBy(b *testing.B) {
	const leases, keys = 64, 64_000
	for _, user := range []string{"", "alice"} {
		b.Run("user="+user, func(b *testing.B) {
			m := tenants(b)
			by := func(c Command) Command { return as(m, user, c) }
			if user == "" {
				mustApply(b, m, as(m, "root", &AuthDisable{}))
				by = func(c Command) Command { return c }
			}
			for id := range lease.ID(leases) {
				mustApply(b, m, by(&Grant{Terms: lease.Terms{ID: id + 1, TTL: 60_000}}))
			}
			do := func(c Command) {
				m.Begin(m.Index()+1, 1)
				if r := m.Apply(c); r.Err != nil {
					b.Fatal(r.Err)
				}
				m.TakeChanges()
			}
			var puts []Command
			for i := range keys {
				key := fmt.Sprintf("a/%04d/%04d", i%leases, i/leases)
				c := by(&Put{Key: key, Value: make([]byte, 128), Lease: lease.ID(i%leases + 1)})
				puts = append(puts, c, c)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%len(puts) == 0 {
					b.StopTimer()
					do(by(&DeleteRange{Key: "a/", End: "a0"}))
					b.StartTimer()
				}
				do(puts[i%len(puts)])
			}
		})
	}
}

// BenchmarkOnce measures a group of puts from command to result, with and without numbers.
func BenchmarkOnce(b *testing.B) {
	const group = 256
	for _, numbered := range []bool{false, true} {
		b.Run(fmt.Sprintf("numbered=%v", numbered), func(b *testing.B) {
			m := filled(100_000)
			m.Begin(m.Index()+1, 1)
			s := m.Apply(&OpenSession{Nonce: 1 << 60}).Value.(Session)
			put := &Put{Key: "key/x", Value: make([]byte, 128)}
			number := uint64(1 << 20)
			b.ReportAllocs()
			for b.Loop() {
				entry, settled := AppendEntry(make([]byte, 0, 256*64), 1), number
				for range group {
					var c Command = put
					if numbered {
						number++
						c = &Once{Session: s, Number: number, Settled: settled, Command: put}
					}
					entry = AppendCommand(entry, c)
				}
				m.Begin(m.Index()+1, 1)
				groups, err := DecodeEntry(entry)
				if err != nil {
					b.Fatal(err)
				}
				for _, c := range groups[0].Commands {
					m.Apply(c)
				}
				m.TakeChanges()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*group), "ns/command")
		})
	}
}

// BenchmarkRestore measures restoring a million leases, each with one key.
func BenchmarkRestore(b *testing.B) {
	m := filled(1_000_000)
	all := chunks(b, m)
	m = nil
	runtime.GC()
	for b.Loop() {
		i := -1
		_, err := Restore(Config{}, func() ([]byte, bool, error) {
			if i++; i == len(all) {
				return nil, false, nil
			}
			return all[i], true, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
