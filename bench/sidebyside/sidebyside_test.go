package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
)

func TestMain(m *testing.M) {
	harness.Parallel()
	os.Exit(m.Run())
}

// TestFaultsAbsent tries to provoke, in parallel, the faults that need one member and only a few
// seconds. The current build of leasehold must show none of them. T18 is excluded because it takes
// more than a minute and is part of etcd's API. leasehold's sources are outside this module, so go
// test does not detect changes to them. Run this test with -count 1.
func TestFaultsAbsent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	binary, err := process.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"T15", "T16", "T17a", "T17b"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			clean, err := run(t.Context(), &options{leasehold: binary, match: "^" + id + " "}, &out)
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if !clean {
				t.Error("a fault was shown")
			}
			if got := strings.Count(out.String(), "leasehold"); got != 1 {
				t.Errorf("%d results", got)
			}
			t.Log("\n" + out.String())
		})
	}
}
