package fsm

import (
	"bytes"
	"testing"

	"leasehold.dev/lease"
)

// Goal: what the answers of sessions take, and so which sessions are forgotten, is the same at a
// member that has restored the state (S3). Method: an answer of each kind.
func TestAnswersTakeTheSameRestored(t *testing.T) {
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
	var chunks [][]byte
	if err := m.Image().Encode(func(b []byte) error {
		chunks = append(chunks, bytes.Clone(b))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	n, err := Restore(Config{}, func() ([]byte, bool, error) {
		if len(chunks) == 0 {
			return nil, false, nil
		}
		b := chunks[0]
		chunks = chunks[1:]
		return b, true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.sessions.bytes == 0 || m.sessions.bytes != n.sessions.bytes {
		t.Errorf("answers take %d bytes, restored %d", m.sessions.bytes, n.sessions.bytes)
	}
}
