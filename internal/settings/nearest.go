package settings

import "github.com/agnivade/levenshtein"

// Nearest returns the name that was most likely intended, or "".
func Nearest(typed string, names []string) string {
	best, least := "", max(len(typed)/3, 2)+1
	for _, n := range names {
		// A name of two letters is two typos away from anything.
		if d := levenshtein.ComputeDistance(typed, n); d < least && d < len(n) && d < len(typed) {
			best, least = n, d
		}
	}
	return best
}
