package app

import (
	"strconv"
	"testing"
)

// TestParseLease checks that an argument is parsed as an ID if etcdctl accepts it as one, and as a
// name otherwise.
func TestParseLease(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "2e": 46, "2E": 46, "326963a02758b52d": 0x326963a02758b52d, "-1": -1,
		"7fffffffffffffff": 1<<63 - 1,
	} {
		if got, err := ParseLeaseArg(s); err != nil || got.Id != want || got.Name != "" {
			t.Errorf("parseLease(%q) = %v, %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"zz": "zz", "0x2e": "0x2e", "server1Lease": "server1Lease", "db/2e": "db/2e", "1.5": "1.5",
		"name:2e": "2e", "name:name:x": "name:x", "cafe au lait": "cafe au lait", "name": "name",
	} {
		if got, err := ParseLeaseArg(s); err != nil || got.Id != 0 || got.Name != want {
			t.Errorf("parseLease(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "8000000000000000", "name:"} {
		if _, err := ParseLeaseArg(s); ExitCode(err) != ExitBadArgs {
			t.Errorf("parseLease(%q): %v", s, err)
		}
	}
}

// FuzzParseLease checks that parsed IDs are printed unchanged, and that no name is lost.
func FuzzParseLease(f *testing.F) {
	f.Add("326963a02758b52d")
	f.Add("-1")
	f.Add("name:-1")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseLeaseArg(s)
		if err != nil {
			return
		}
		form := strconv.FormatInt(r.Id, 16)
		if r.Name != "" {
			form = "name:" + r.Name
		}
		again, err := ParseLeaseArg(form)
		if err != nil || again.Id != r.Id || again.Name != r.Name {
			t.Errorf("%q is %v, but then %v, %v", s, r, again, err)
		}
	})
}
