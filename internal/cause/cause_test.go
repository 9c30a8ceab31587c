package cause

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReport checks that a line is split if and only if it consists of a code and a text.
func TestReport(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][2]string{
		DiskFull.Report("no room: none"): {"DISK_FULL", "no room: none"},
		"the disk is full":               {"", "the disk is full"},
		"no leader: none":                {"", "no leader: none"},
		": none":                         {"", ": none"},
		"ALARM NOSPACE: yes":             {"", "ALARM NOSPACE: yes"},
	} {
		if code, text := OfReport(line); string(code) != want[0] || text != want[1] {
			t.Errorf("%q is %q and %q", line, code, text)
		}
	}
}

// TestDocumented checks that every code is documented, and nothing else is called a code.
func TestDocumented(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("cause.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(doc), "### Causes")
	list, _, _ = strings.Cut(list, "\n#")
	known := make(map[string]bool)
	for _, m := range regexp.MustCompile(`Code = "(\w+)"`).FindAllStringSubmatch(string(code), -1) {
		known[m[1]] = true
		if !strings.Contains(list, "`"+m[1]+"`") {
			t.Errorf("docs/operations.md does not have %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(list, -1) {
		if !known[m[1]] {
			t.Errorf("docs/operations.md has %s, which is no code", m[1])
		}
	}
}
