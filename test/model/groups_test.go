package model

import (
	"strings"
	"testing"
)

// TestGroupRulesAreEnough checks that no grouped lease ends while its holder is valid, and that
// none is kept alive without a holder.
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
			t.Errorf("broken promise:\n%s", strings.Join(f.Broken, "\n"))
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
		t.Errorf("some steps never happened: %+v", all)
	}
}

// TestEachGroupRuleIsNeeded omits each rule about groups in turn and checks that the search then
// finds a broken promise.
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
		OwnExpiryOnly:    {"renewals of a group do not count", one},
		AnswerEarly:      {"no confirm round", elections},
		AnswerOutOfOrder: {"answers leave out of order", one},
		AnswerAlone:      {"a relay answers without the leader", one},
		CountSent:        {"an earlier renewal counts", one},
		CountUnjoined:    {"a join counts before it is answered", one},
		TrustOldJoin:     {"a join counts after its leave", one},
		TrustLateJoin:    {"a join counts after its answer was overtaken", one},
		CountOvertaking:  {"a renewal counts when its answer overtakes another", one},
		TrustUnanswered:  {"a join from before an abandoned renewal counts", impatient},
		HideLeft:         {"a lease's move to another group is not reported", two},
		HideSilent:       {"a dissolved group is renewed", one},
		SurviveElection:  {"a group survives an election", elections},
		ForgetOnLeave:    {"a lease leaves as of its join", one},
		ForgetOnBreak: {
			"a broken group ends as of its joins", GroupBounds{Terms: 1, Sent: [keepers]byte{2}, Crashes: 1},
		},
		AnswerAfterLeave: {"a renewal from before the leave counts", one},
		LoseLeave:        {"a leave is lost", one},
		LeaveJoined:      {"a lease not counted as joined gets no leave", one},
		CountJoins:       {"two joins need two leaves", one},
		JoinWithdrawn:    {"a lease joins after its permission is withdrawn", withdraw},
		KeepWithdrawn:    {"a lease stays after its permission is withdrawn", withdraw},
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
