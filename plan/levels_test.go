package plan

import (
	"testing"
	"time"
)

// TestLevels checks the textbook chain: 10 s at the top, 25 s below it by the rule of thumb, and at
// worst 35 s without a holder. It also checks what the rule does not say: with renewals at half the
// TTL, the chain fails at the third level.
func TestLevels(t *testing.T) {
	holders, err := ThumbChain(Holder{TTL: 10 * s, Renew: 5 * s}, ThumbFactor, 3)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := Chain(0, []string{"core", "primary", "part"}, holders)
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ ttl, worst, slack, needs time.Duration }
	for i, want := range []row{
		{10 * s, 10 * s, 5 * s, 0},
		{25 * s, 35 * s, 2500 * time.Millisecond, 20 * s},
		{62500 * time.Millisecond, 97500 * time.Millisecond, -3750 * time.Millisecond, 70 * s},
	} {
		l := chain[i]
		if got := (row{l.Holder.TTL, l.Worst, l.Slack, l.Needs}); got != want {
			t.Errorf("level %d: %+v, want %+v", i, got, want)
		}
	}
}

// TestNamesMissing checks that a chain is rejected if its levels have no names.
func TestNamesMissing(t *testing.T) {
	if _, err := Chain(0, nil, []Holder{{TTL: 10 * s}}); err == nil {
		t.Error("it is taken")
	}
}
