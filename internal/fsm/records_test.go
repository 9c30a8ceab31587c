package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/encoding"
)

// scan returns the kind of each record in a snapshot, with "-" for an error, and all errors.
func scan(s *Scanner, chunks ...[]byte) (kinds []string, first error) {
	for _, chunk := range chunks {
		for r, err := range s.Records(chunk) {
			if err != nil {
				kinds, first = append(kinds, "-"), errors.Join(first, err)
				continue
			}
			kinds = append(kinds, r.Kind)
		}
	}
	return kinds, errors.Join(first, s.End())
}

// TestScanner checks that a Scanner lists all records of a snapshot and reports the faults of
// damaged ones.
func TestScanner(t *testing.T) {
	whole := chunks(t, everything(t))
	kinds, err := scan(new(Scanner), whole...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"access", "account", "alarm", "answer", "comparison", "header", "holds", "lease", "limits",
		"member", "orphan", "removed", "restore", "role", "session", "session user", "trailer", "user",
		"version",
	}
	if got := slices.Compact(slices.Sorted(slices.Values(kinds))); !slices.Equal(got, want) {
		t.Errorf("kinds %q, want %q", got, want)
	}
	if kinds[0] != "header" || kinds[len(kinds)-1] != "trailer" {
		t.Errorf("kinds %q", kinds)
	}
	one := snapshot(true, sessionRecord(1, 0))
	unknown := record(tagLast+1, func(b []byte) []byte { return b })(nil)
	broken := record(tagLease, func(b []byte) []byte { return b })(nil)
	for name, c := range map[string]struct {
		chunks [][]byte
		kinds  string
		says   string
	}{
		"whole":         {one, "header session trailer", ""},
		"nothing":       {nil, "", "ends early"},
		"no trailer":    {one[:2], "header session", "ends early"},
		"no header":     {one[1:], "- -", "the first record must be the header"},
		"another alone": {one[1:2], "-", "the first record must be the header"},
		"two headers":   {[][]byte{one[0], one[0], one[2]}, "header - trailer", "the first record must be the header"},
		"after the end": {append(one[:3:3], one[1]), "header session trailer -", "follows the trailer"},
		"miscounted":    {[][]byte{one[0], one[2]}, "header -", "specifies 2 records, but there are 1"},
		"of a newer":    {[][]byte{one[0], unknown, one[2]}, "header - trailer", "record kind"},
		"half a record": {[][]byte{one[0], broken, one[2]}, "header - trailer", ""},
		"half an end":   {[][]byte{one[0], {tagTrailer}}, "header -", "ends early"},
		"half a header": {[][]byte{one[0][:4], one[1]}, "- -", ""},
		"in one chunk":  {snapshot(false, sessionRecord(1, 0)), "header session trailer", ""},
		"broken in one": {snapshot(false, func(b []byte) []byte { return append(b, 0) }), "header -", ""},
	} {
		kinds, err := scan(new(Scanner), c.chunks...)
		bad := strings.Contains(c.kinds, "-") || c.says != ""
		if got := strings.Join(kinds, " "); got != c.kinds || (err != nil) != bad {
			t.Errorf("%s: %q, error %v", name, got, err)
		}
		if bad && (!strings.Contains(err.Error(), c.says) ||
			errors.Is(err, encoding.ErrNewer) != (name == "of a newer")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for r := range new(Scanner).Records(snapshot(false)[0]) {
		if r.Kind != "header" {
			t.Errorf("the first record is a %s", r.Kind)
		}
		break
	}
	var s Scanner
	for _, chunk := range snapshot(true, comparisonRecord(5, 7)) {
		for r := range s.Records(chunk) {
			if got, want := fmt.Sprintf("%+v", r.Value), "{Index:5 Hashes:[{Member:7 Hash:5}]}"; r.Kind ==
				"comparison" && got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}
