package fsm

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// TestHashCoversState checks that states that differ in any part have different hashes, so that
// divergence is detected (S3).
func TestHashCoversState(t *testing.T) {
	lend := func(ttl lease.TTL, holds ...keyrange.Range) Command {
		return &Grant{Terms: lease.Terms{ID: 1, TTL: ttl}, Holds: holds}
	}
	once := func(number uint64) Command {
		return &Once{Session: Session{ID: 1, Nonce: 7}, Number: number, Command: &Put{Key: "k"}}
	}
	gone := func(id uint64) []Command {
		return []Command{&AddMember{Member{ID: id, PeerURLs: []string{"p"}}}, &RemoveMember{ID: id}}
	}
	urls := []string{"a", "b"}
	low, high := keyrange.Range{Key: "a"}, keyrange.Range{Key: "b"}
	for name, pair := range map[string][2][]Command{
		"a value":   {{&Put{Key: "k", Value: []byte("a")}}, {&Put{Key: "k", Value: []byte("b")}}},
		"a lease":   {{lend(5000)}, {lend(6000)}},
		"a hold":    {{lend(5000, low)}, {lend(5000, high)}},
		"an orphan": {{lend(5000, low), &Revoke{ID: 1}}, {lend(5000, high), &Revoke{ID: 1}}},
		"an answer": {{once(1)}, {once(2)}},
		"an alarm":  {{&SetAlarm{Alarm: Alarm{1, NoSpace}}}, {&SetAlarm{Alarm: Alarm{2, NoSpace}}}},
		"a member": {
			{&SetMember{Member{ID: 1, ClientURLs: urls[:1]}}},
			{&SetMember{Member{ID: 1, ClientURLs: urls}}},
		},
		"no member":  {gone(8), gone(9)},
		"a user":     {{&UserAdd{Name: "a"}}, {&UserAdd{Name: "b"}}},
		"compaction": {{&Compact{Revision: 2}}, {&Compact{Revision: 3}}},
	} {
		var hashes [2]uint32
		for i, commands := range pair {
			m := New(Config{})
			for id := range uint64(4) {
				m.AddMember(Member{ID: id + 1, PeerURLs: []string{fmt.Sprint(id)}})
			}
			open(t, m, 7)
			for range 3 {
				mustApply(t, m, &Put{Key: "k"})
			}
			for _, c := range commands {
				apply(t, m, c)
			}
			hashes[i] = hash(t, m)
		}
		if hashes[0] == hashes[1] {
			t.Errorf("%s: both have the hash %x", name, hashes[0])
		}
	}
}
