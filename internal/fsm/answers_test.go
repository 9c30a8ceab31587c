package fsm

import (
	"errors"
	"reflect"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/lease"
)

// TestRestoredAnswerSize checks that the recorded responses of sessions have the same size
// after a restore (S3). This size determines which sessions are evicted.
func TestRestoredAnswerSize(t *testing.T) {
	m := New(Config{})
	m.Begin(1, 1)
	s := m.Apply(&OpenSession{Nonce: 3}).Value.(Session)
	for i, c := range []Command{
		&Put{Key: "a", Value: []byte("v")},
		&Put{Key: "a", Value: []byte("w"), PrevKV: true},
		&Grant{Terms: lease.Terms{
			ID: 7, TTL: 1000, Name: "n", Owner: "o", Labels: map[string]string{"k": "v"},
		}},
		&Grant{Terms: lease.Terms{ID: 8, TTL: 1000, Name: "n"}},
		&Txn{Then: []Op{{Put: &Put{Key: "b"}}, {Range: &Range{Key: "a", End: "z"}}, {Draw: true}}},
		&DeleteRange{Key: "a", End: "z", PrevKV: true},
		&Revoke{ID: 9},
	} {
		m.Apply(&Once{Session: s, Number: uint64(i + 1), Command: c})
	}
	n := restored(t, m)
	if m.sessions.bytes == 0 || m.sessions.bytes != n.sessions.bytes {
		t.Errorf("answers take %d bytes, restored %d", m.sessions.bytes, n.sessions.bytes)
	}
}

// FuzzAnswer checks that arbitrary bytes either fail to decode as a recorded response, or decode to
// a response that survives another round trip.
func FuzzAnswer(f *testing.F) {
	for _, x := range resultThings() {
		f.Add(x.bytes)
	}
	read := func(b []byte) (Result, error) {
		d := &decoder{Decoder: snapshotFormat.Decoder(1, b)}
		r := d.result()
		return r, d.End()
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := read(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, encoding.ErrNewer) {
				t.Fatalf("%x: %v", b, err)
			}
			return
		}
		if again, err := read(appendResult(nil, &r)); err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%x is %+v, and read again %+v, %v", b, r, again, err)
		}
	})
}

// TestSnapshotKeepsSessionsUnderASmallerQuota checks that a member that starts from a snapshot
// keeps all sessions that other members have, even if the quota has since become too small for
// them.
func TestSnapshotKeepsSessionsUnderASmallerQuota(t *testing.T) {
	m := New(Config{})
	m.AddMember(Member{ID: 1})
	for n := range uint64(3) {
		s := mustApply(t, m, &By{access.Caller{User: "u"}, &OpenSession{Nonce: n}}).(Session)
		mustApply(t, m, &Put{Key: "k", Value: make([]byte, 3000)})
		mustApply(t, m, &By{access.Caller{User: "u"}, &Once{
			Session: s, Number: 1, Command: &Put{Key: "k", PrevKV: true},
		}})
	}
	mustApply(t, m, &SetMember{Member{ID: 1, Quota: MinQuota}})
	if hash(t, m) != hash(t, restored(t, m)) {
		t.Error("the states differ")
	}
	if open(t, m, 9); len(m.sessions.byID) != 4 {
		t.Errorf("a session of nobody has left %d", len(m.sessions.byID))
	}
}
