package version

import (
	"fmt"
	"slices"
	"strings"
)

// The cluster version is a number that all members of a cluster agree on through the log. It
// determines what entries, snapshots and messages between members can contain. A release can read
// everything written in any version up to the newest one it supports, but it writes only what the
// cluster version allows.

// Range is the range of cluster versions that a member supports. The member can be in a cluster
// with any of these versions. The zero value means that the range is unknown.
type Range struct{ Oldest, Newest byte }

// Spoken is the range that this release supports.
var Spoken = Range{Oldest, Newest}

// Known reports whether r is a valid range.
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
// patch number. For a version that a later release introduced, it returns only the number.
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

// Parse returns the cluster version with the given name. It ignores a leading "v" and a patch
// number. It returns 0 if this release has no version with that name.
func Parse(name string) byte {
	parts := strings.SplitN(strings.TrimPrefix(name, "v"), ".", 3)
	if len(parts) < 2 {
		return 0
	}
	return byte(max(0, slices.Index(names, parts[0]+"."+parts[1])))
}
