package settings

import "testing"

// Goal: slips are counted as they are defined. Method: the recursive definition.
func TestDistance(t *testing.T) {
	words := []string{"", "a", "get", "gte", "put", "watch", "wacth", "lease", "release"}
	for _, a := range words {
		for _, b := range words {
			if got, want := Distance(a, b), slowDistance(a, b); got != want {
				t.Errorf("Distance(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func slowDistance(a, b string) int {
	switch {
	case a == "":
		return len(b)
	case b == "":
		return len(a)
	case a[0] == b[0]:
		return slowDistance(a[1:], b[1:])
	}
	return 1 + min(slowDistance(a[1:], b), slowDistance(a, b[1:]), slowDistance(a[1:], b[1:]))
}
