package sim

const (
	byGo      = "internal/fsm/permission.go"
	touchGo   = "internal/fsm/permission_lease.go"
	aheadGo   = "internal/fsm/ahead.go"
	fsmRights = "internal/fsm/access.go"
	decideGo  = "internal/access/decide.go"
	guardGo   = "internal/api/guard.go"
)

// plantedAccess lists faults in access control. The tests of packages access and fsm and of the
// APIs cover faults in single rules.
var plantedAccess = []planted{
	{"who may do a command is not decided when it is applied", "A1", []edit{
		{byGo, "\t\treturn m.permit(by.Caller, by.Command)\n", "\t\t_ = by\n\t\treturn nil\n"},
	}},
	{"the replaced pair is told to those who may only write", "A1", []edit{
		{byGo, "\tif c.PrevKV {\n\t\tif err := p.check(access.Read, c.Key, \"\"); err != nil {\n" +
			"\t\t\treturn err\n\t\t}\n\t}\n", ""},
	}},
	{"of a transaction one branch is asked about", "A1", []edit{
		{byGo, "[...][]Op{c.Then, c.Else}", "[...][]Op{c.Then}"},
	}},
	{"a lease of somebody is anybody's", "A1", []edit{
		{touchGo, "\t\treturn a.By.CheckLease(a.Who, what, of)\n", "\t\treturn nil\n"},
	}},
	{"a lease of nobody is anybody's", "A1", []edit{
		{touchGo, "\treturn access.OfLease(eachKey(needs))\n", "\t_ = needs\n\treturn nil\n"},
	}},
	{"a deletion is begun for those who may not do it", "A1", []edit{
		{aheadGo, " || m.denied(c) != nil {", " {"},
	}},
	{"who asks is lost on the way to the leader", "A1", []edit{
		{forwardGo, "case !msg.add(p.Command):", "case !msg.add(func() fsm.Command {\n" +
			"\t\t\tif by, ok := p.Command.(*fsm.By); ok {\n\t\t\t\treturn by.Command\n\t\t\t}\n" +
			"\t\t\treturn p.Command\n\t\t}()):"},
	}},
	{"a log-in counts for ever", "A1", []edit{
		{decideGo, "if c.Revision < s.revision {", "if c.Revision > s.revision<<62 {"},
	}},
	{"what is open stays when its right is taken away", "A1", []edit{
		{guardGo, "if by == g.state && who == g.who {", "if g.state != nil {"},
	}},
	{"caches keep what a right was taken to", "A1", []edit{
		{effectsGo, "if fsm.TakesRights(c) {", "if false {"},
	}},
	{"caches keep what a lesser permission does not allow", "A1", []edit{
		{
			fsmRights, "*RoleDelete, *RoleGrant, *RoleRevoke,\n",
			"*RoleDelete, *RoleRevoke,\n",
		},
	}},
	{"users and roles are not in a snapshot", "A1", []edit{
		{
			fsmRights, "\tif s == nil {\n\t\treturn\n\t}\n\twrite(tagControl",
			"\tif s == nil || true {\n\t\treturn\n\t}\n\twrite(tagControl",
		},
	}},
}
