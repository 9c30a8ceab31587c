package version

import (
	"fmt"
	"slices"
	"strings"
)

// The cluster version is one number that all members of a cluster have decided on through the
// log. It says what entries, snapshots and messages between members may contain. A release reads
// what any version up to its newest has written, and writes what the cluster version allows.

// Range is the cluster versions that a member speaks, from the oldest to the newest: it can be in
// a cluster of one of these. The zero value means that nobody knows.
type Range struct{ Oldest, Newest byte }

// Spoken is what this release speaks.
var Spoken = Range{Oldest, Newest}

// Known reports whether r is a range.
func (r Range) Known() bool { return 0 < r.Oldest && r.Oldest <= r.Newest }

// Has reports whether a cluster version is in the range.
func (r Range) Has(v byte) bool { return r.Known() && r.Oldest <= v && v <= r.Newest }

// String is the form that people read: "0.1", or "0.1 to 0.2".
func (r Range) String() string {
	if r.Oldest == r.Newest {
		return Name(r.Newest)
	}
	return Name(r.Oldest) + " to " + Name(r.Newest)
}

// Name returns the cluster version as people call it: by the release that brought it, without its
// patch number. Of a later release this one knows no more than the number.
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

// Parse returns the cluster version that people call name. A "v" before it and a patch number
// after it say nothing. It is 0 if this release does not know one of that name.
func Parse(name string) byte {
	parts := strings.SplitN(strings.TrimPrefix(name, "v"), ".", 3)
	if len(parts) < 2 {
		return 0
	}
	return byte(max(0, slices.Index(names, parts[0]+"."+parts[1])))
}
