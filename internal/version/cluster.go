package version

import (
	"fmt"
	"slices"
	"strings"
)

// The cluster version is one number that all members of a cluster agree on through the log. It
// determines what entries, snapshots and messages between members may contain. A release can read
// everything written in versions up to its newest, and writes what the cluster version allows.

// Range is the range of cluster versions that a member supports: it can be in a cluster with any of
// these. The zero value means unknown.
type Range struct{ Oldest, Newest byte }

// Spoken is the range that this release supports.
var Spoken = Range{Oldest, Newest}

// Known reports whether r is a range.
func (r Range) Known() bool { return 0 < r.Oldest && r.Oldest <= r.Newest }

// Has reports whether a cluster version is in the range.
func (r Range) Has(v byte) bool { return r.Known() && r.Oldest <= v && v <= r.Newest }

// String returns the range in readable form: "0.1", or "0.1 to 0.2".
func (r Range) String() string {
	if r.Oldest == r.Newest {
		return Name(r.Newest)
	}
	return Name(r.Oldest) + " to " + Name(r.Newest)
}

// Name returns the cluster version in readable form: the release that introduced it, without the
// patch number. For versions of later releases it returns only the number.
func Name(v byte) string {
	if v == 0 || int(v) >= len(names) {
		return fmt.Sprintf("number %d", v)
	}
	return names[v]
}

// Semantic returns the cluster version as a semantic version, for clients that parse it as one.
func Semantic(v byte) string {
	if v == 0 || int(v) >= len(names) {
		return ""
	}
	return names[v] + ".0"
}

// Parse returns the cluster version with the given name. A leading "v" and a patch number are
// ignored. It returns 0 if this release does not have a version of that name.
func Parse(name string) byte {
	parts := strings.SplitN(strings.TrimPrefix(name, "v"), ".", 3)
	if len(parts) < 2 {
		return 0
	}
	return byte(max(0, slices.Index(names, parts[0]+"."+parts[1])))
}
