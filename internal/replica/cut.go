package replica

import "slices"

// cut takes list[i:k] out of a list, and moves the shorter of what is before that and what is
// behind it. So a caller that takes a long list away piece by piece, mostly from the front, does
// not move the rest of it each time. Like slices.Delete it lets go of what it takes out.
func cut[T any](list []T, i, k int) []T {
	if n := k - i; i < len(list)-k && len(list)-k > n {
		copy(list[n:k], list[:i])
		clear(list[:n])
		return list[n:]
	}
	return slices.Delete(list, i, k) // which keeps the memory in front
}
