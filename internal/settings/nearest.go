package settings

import "github.com/agnivade/levenshtein"

// Nearest returns the name that was most likely intended, or "" if none is similar.
func Nearest(typed string, names []string) string {
	best, least := "", max(len(typed)/3, 2)+1
	for _, n := range names {
		// Any two names of two letters are at most two typos apart.
		if d := levenshtein.ComputeDistance(typed, n); d < least && d < len(n) && d < len(typed) {
			best, least = n, d
		}
	}
	return best
}
