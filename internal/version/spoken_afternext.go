//go:build next && afternext

package version

// This is a make-believe release that does not speak the first cluster version any more.
const (
	Oldest byte = 2
	Newest byte = 3
)

var names = []string{"", "0.1", "0.2", "0.3"}
