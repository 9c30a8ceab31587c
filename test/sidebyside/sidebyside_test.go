package main

import (
	"bytes"
	"strings"
	"testing"

	"leasehold.dev/test/process"
)

// TestFaultsAbsent provokes the faults that take seconds in a leasehold that is built
// now, and expects none of them: those of one member. (T18 takes more than a minute,
// and is etcd's API's.)
func TestFaultsAbsent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes about a minute")
	}
	if err := process.DependOnSources(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	clean, err := run(t.Context(), &options{match: "^T1[567]"}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !clean {
		t.Error("a fault was shown")
	}
	if got := strings.Count(out.String(), "leasehold"); got != 4 {
		t.Errorf("%d results", got)
	}
	t.Log("\n" + out.String())
}
