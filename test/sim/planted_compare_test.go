package sim

const (
	damageGo     = "internal/replica/damage.go"
	fsmCompareGo = "internal/fsm/compare.go"
)

// plantedCompare lists faults in the comparison of members' states.
var plantedCompare = []planted{
	{"a hash is told of a later state than was asked for", "S3", []edit{
		{"internal/replica/apply.go", "r.machine.HashedAt() == e.GetIndex()", "r.machine.HashedAt() > 0"},
		{damageGo, "of.View.Index == r.machine.HashedAt()", "r.machine.HashedAt() > 0"},
		{damageGo, "Index: of.View.Index,", "Index: r.machine.HashedAt(),"},
	}},
	{"a member whose state differs goes on", "S3", []edit{
		{damageGo, "r.machine.IsDamaged(r.cfg.ID)", "r.machine.IsDamaged(0)"},
	}},
	{"the hash of one member condemns the others", "S3", []edit{
		{fsmCompareGo, "\t\tif 2*n > voters {", "\t\tif n > 0 && h == m.meta.comparison.hashes[3] {"},
	}},
}
