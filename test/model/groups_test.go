package model

import (
	"strings"
	"testing"
)

// No lease in a group ends while its holder is sure of it, and none is kept alive for no one.
func TestGroupRulesAreEnough(t *testing.T) {
	searches := []GroupBounds{
		{Terms: 1, Sent: [keepers]byte{3}, Impatient: true, Withdraw: true},
		{Terms: 1, Sent: [keepers]byte{2, 1}},
		{Terms: 2, Sent: [keepers]byte{2}},
		{Terms: 1, Sent: [keepers]byte{2}, Crashes: 1},
	}
	if *long {
		searches = []GroupBounds{
			{Terms: 1, Sent: [keepers]byte{2, 2}},
			{Terms: 1, Sent: [keepers]byte{3, 1}},
			{Terms: 2, Sent: [keepers]byte{3}, Crashes: 1, Impatient: true, Withdraw: true},
			{Terms: 2, Sent: [keepers]byte{2, 1}},
		}
	}
	var all GroupsFound
	for _, b := range searches {
		f := SearchGroups(b, NoGroupFault)
		t.Logf("%+v: %+v", b, f)
		if f.Broken != nil {
			t.Errorf("a promise is broken:\n%s", strings.Join(f.Broken, "\n"))
		}
		all.Elections += f.Elections
		all.Joins += f.Joins
		all.Renewals += f.Renewals
		all.Leaves += f.Leaves
		all.Moves += f.Moves
		all.Expiries += f.Expiries
	}
	if all.Elections == 0 || all.Joins == 0 || all.Renewals == 0 || all.Leaves == 0 ||
		all.Moves == 0 || all.Expiries == 0 {
		t.Errorf("something was never seen: %+v", all)
	}
}

// Without any one rule about groups the search finds a broken promise.
func TestEachGroupRuleIsNeeded(t *testing.T) {
	one := GroupBounds{Terms: 1, Sent: [keepers]byte{3}}
	impatient := GroupBounds{Terms: 1, Sent: [keepers]byte{3}, Impatient: true}
	two := GroupBounds{Terms: 1, Sent: [keepers]byte{2, 1}}
	elections := GroupBounds{Terms: 2, Sent: [keepers]byte{2}}
	withdraw := GroupBounds{Terms: 1, Sent: [keepers]byte{3}, Withdraw: true}
	for fault, test := range map[GroupFault]struct {
		name   string
		bounds GroupBounds
	}{
		OwnExpiryOnly:    {"a group's renewal does not count", one},
		AnswerEarly:      {"no confirm round", elections},
		AnswerOutOfOrder: {"answers are released in any order", one},
		AnswerAlone:      {"a relay answers by itself", one},
		CountSent:        {"an answer to an earlier renewal counts", one},
		CountUnjoined:    {"a join counts before its answer", one},
		TrustOldJoin:     {"a join that was taken back counts", one},
		TrustLateJoin:    {"a join counts whose answer was overtaken", one},
		CountOvertaking:  {"a renewal counts whose answer overtook another", one},
		TrustUnanswered:  {"a join counts from before a renewal without an answer", impatient},
		HideLeft:         {"another group's lease is not reported", two},
		HideSilent:       {"a dissolved group is renewed", one},
		SurviveElection:  {"a group survives an election", elections},
		ForgetOnLeave:    {"a lease leaves as of its join", one},
		ForgetOnBreak: {
			"a group ends as of its joins", GroupBounds{Terms: 1, Sent: [keepers]byte{2}, Crashes: 1},
		},
		AnswerAfterLeave: {"a lease that has left is answered", one},
		LoseLeave:        {"a leave is lost", one},
		LeaveJoined:      {"a lease is lost without a leave", one},
		CountJoins:       {"a join counts twice", one},
		JoinWithdrawn:    {"a lease joins after its permission was withdrawn", withdraw},
		KeepWithdrawn:    {"a lease stays after its permission was withdrawn", withdraw},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := SearchGroups(test.bounds, fault)
			t.Logf("%d worlds\n%s", f.Worlds, strings.Join(f.Broken, "\n"))
			if f.Broken == nil {
				t.Error("not found")
			}
		})
	}
}
