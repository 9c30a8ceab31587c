package sim

// plantedAgain are faults that show when a member is elected again that was deposed with entries
// in flight, and when the log has no room.
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
}

// plantedVersions are faults of the cluster version, in the make-believe next release.
var plantedVersions = []planted{
	{"the cluster version rises although it is held", "V1", []edit{
		{versionGo, "case !now.Held && common.Known()", "case common.Known()"},
		{versionGo, "rises && (c.Hold || now.Held)", "rises && c.Hold"},
	}},
	{"an entry is written behind a change of the cluster version", "V1", []edit{
		{
			proposeGo, "_, ok := fsm.Inner(p.Command).(*fsm.SetVersion)\n\treturn ok\n}",
			"return false\n}",
		},
	}},
	{"the cluster version rises before it is known what all members speak", "V1", []edit{
		{versionGo, "case !r.Known():\n\t\t\treturn nil", "case !r.Known():"},
		{versionGo, " || rises && !n.Versions.Known()", ""},
	}},
	{"what waits for a change of the cluster version is refused", "V1", []edit{
		{takeGo, "len(l.queue.waiting) > 0 && !l.queue.versioning", "len(l.queue.waiting) > 0"},
	}},
	{"a refused change of the cluster version is never over", "V1", []edit{
		{leaderGo, "\t\tl.raising = false\n", "\t\tl.raising = !applied\n"},
	}},
}
