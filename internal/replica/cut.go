package replica

import "slices"

// cut removes list[i:k] from a list by moving the shorter of the two remaining parts. So when a
// long list is removed piece by piece, usually from the front, the remainder is not moved each
// time. Like slices.Delete, cut clears the removed elements.
func cut[T any](list []T, i, k int) []T {
	if n := k - i; i < len(list)-k && len(list)-k > n {
		copy(list[n:k], list[:i])
		clear(list[:n])
		return list[n:]
	}
	return slices.Delete(list, i, k) // keeps the memory before i
}
