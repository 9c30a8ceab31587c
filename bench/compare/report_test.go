package compare

import (
	"strings"
	"testing"
)

// TestSheetOfUnequals checks that if only one server has a figure, the sheet shows a dash for the
// other.
func TestSheetOfUnequals(t *testing.T) {
	both, own := Metric{"both", 1, "ms"}, Metric{"own", 2, "ns"}
	list := []*Series{
		{Workload: "w", Target: "etcd", Rounds: []Result{{More: []Metric{both}}}, Sheet: true},
		{Workload: "w", Target: "leasehold", Rounds: []Result{{More: []Metric{own, both}}}, Sheet: true},
	}
	var out strings.Builder
	if err := WriteTable(&out, Plan{}, list); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	if !strings.Contains(got, "own, ns - 2 both, ms 1 1") {
		t.Error(out.String())
	}
}
