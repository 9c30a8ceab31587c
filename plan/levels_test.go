package plan

import (
	"testing"
	"time"
)

// The textbook's chain: 10 s above, 25 s by the rule of thumb, 35 s without a holder at worst. What
// the rule omits: with renewals at half, it fails at the third level.
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

// A chain whose levels have no names is refused.
func TestNamesMissing(t *testing.T) {
	if _, err := Chain(0, nil, []Holder{{TTL: 10 * s}}); err == nil {
		t.Error("it is taken")
	}
}
