package version

// Oldest and Newest are the lowest and highest cluster versions that this release supports.
const (
	Oldest byte = 1
	Newest byte = 1
)

// names lists the release that introduced each cluster version. There is no version 0.
var names = []string{"", "0.1"}
