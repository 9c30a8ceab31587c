package version

// Oldest and Newest are the cluster versions that this release speaks.
const (
	Oldest byte = 1
	Newest byte = 1
)

// names are the cluster versions by the release that brought each; there is none of number 0.
var names = []string{"", "0.1"}
