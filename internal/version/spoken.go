package version

// Oldest and Newest are the cluster versions that this release supports.
const (
	Oldest byte = 1
	Newest byte = 1
)

// names lists, for each cluster version, the release that introduced it; there is no version 0.
var names = []string{"", "0.1"}
