package keyrange

// OfPrefix returns the range of all keys that begin with a prefix. The empty prefix yields the
// range of all keys.
func OfPrefix(prefix string) Range {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return Range{Key: prefix, End: string(end[:i+1])}
		}
	}
	return Range{Key: prefix, End: NoEnd}
}
