package model

import (
	"flag"
	"strings"
	"testing"
)

var long = flag.Bool("long", false, "widen the bounds: takes minutes and gigabytes")

// TestRulesAreEnough checks that no lease ends while its holder is valid, in any world within the
// bounds.
func TestRulesAreEnough(t *testing.T) {
	searches := []Bounds{{Time: 6, Terms: 2, Log: 5, Renewals: 1}}
	if *long {
		searches = []Bounds{
			{Time: 7, Terms: 2, Log: 5, Renewals: 1},
			{Time: 6, Terms: 3, Log: 5, Renewals: 1},
			{Time: 6, Terms: 2, Log: 5, Renewals: 1, Crashes: 1},
			{Time: 6, Terms: 2, Log: 5, Renewals: 2},
		}
	}
	for _, b := range searches {
		f := Search(b, NoFault)
		t.Logf("%+v: %d worlds", b, f.Worlds)
		if f.Early != nil {
			t.Errorf("lease ended early:\n%s", strings.Join(f.Early, "\n"))
		}
		if f.Elections == 0 || f.Checkpoints == 0 || f.Clearings == 0 || f.Expiries == 0 ||
			f.Renewals == 0 {
			t.Errorf("some steps never happened: %+v", f)
		}
	}
}

// TestEachRuleIsNeeded omits each rule in turn and checks that the search then finds a lease that
// ends early.
func TestEachRuleIsNeeded(t *testing.T) {
	for fault, name := range map[Fault]string{
		NoConfirm: "no confirm round", NoRefresh: "a new leader does not refresh",
		NoClear: "checkpoints are not cleared", Forward: "a deposed leader's expiry counts",
	} {
		t.Run(name, func(t *testing.T) {
			f := Search(Bounds{Time: 6, Terms: 2, Log: 5, Renewals: 1}, fault)
			t.Logf("%d worlds\n%s", f.Worlds, strings.Join(f.Early, "\n"))
			if f.Early == nil {
				t.Error("no early end found")
			}
		})
	}
}
