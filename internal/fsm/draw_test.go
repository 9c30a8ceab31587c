package fsm

import (
	"testing"

	"leasehold.dev/lease"
)

// drawn applies a transaction and returns the tokens it drew.
func drawn(t testing.TB, m *Machine, c *Txn) (tokens []lease.Token) {
	t.Helper()
	var add func(r *TxnResult)
	add = func(r *TxnResult) {
		for _, v := range r.Responses {
			switch v := v.(type) {
			case lease.Token:
				tokens = append(tokens, v)
			case *TxnResult:
				add(v)
			}
		}
	}
	add(mustApply(t, m, c).(*TxnResult))
	return tokens
}

// TestDrawRestored (T27) checks that a snapshot preserves the last token drawn, and that a restored
// backup draws higher tokens.
func TestDrawRestored(t *testing.T) {
	m := New(Config{})
	c := &Txn{Then: []Op{{Draw: true}}}
	last := drawn(t, m, c)[0]
	m = restored(t, m)
	if next := drawn(t, m, c)[0]; next != last+1 {
		t.Errorf("token %d after %d", next, last)
	}
	m = mustRestoreBackup(t, m, Restoration{})
	if next := drawn(t, m, c)[0]; next>>tokenGenerationShift != 1 {
		t.Errorf("token %#x after a restore from a backup", next)
	}
}
