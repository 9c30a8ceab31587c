package sim

// plantedAgain lists faults that appear when a member that was deposed with entries in flight is
// re-elected, or when the log has no room.
var plantedAgain = []planted{
	{"a new leader forgets the leases for which its first step has no time", "L2", []edit{
		{promotionGo, "if p.reached == p.end {", "if true {"},
	}},
	{"an outcome of an earlier term counts in this one", "rule 7", []edit{
		{applyGo, "if r.lead != nil && r.lead.term == term {", "if _ = term; r.lead != nil {"},
	}},
	{"an orphan that was not dropped is forgotten", "C1", []edit{
		{leaderGo, "\t\t\tl.gate.caches.NotDropped(c.Tokens)\n", ""},
	}},
	{"settled answers stay counted", "state", []edit{
		{"internal/fsm/sessions.go", "\tl.grow(s, -bytes)\n", "\t_ = bytes\n"},
	}},
	{"what waits for a change of the cluster version is refused", "V1", []edit{
		{takeGo, "len(l.queue.waiting) > 0 && !l.queue.versioning", "len(l.queue.waiting) > 0"},
	}},
}
