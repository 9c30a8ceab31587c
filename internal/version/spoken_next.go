//go:build next && !afternext

package version

// With the tag next this is a make-believe release, for tests of upgrades: the one after this. It
// has one more command (package fsm), a flag and a field of the snapshot behind it, and one more
// message between members (package replica). With afternext it is the one after that.
const (
	Oldest byte = 1
	Newest byte = 2
)

var names = []string{"", "0.1", "0.2"}
