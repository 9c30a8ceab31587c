package keyrange

import "strings"

// NoEnd is the End of an unbounded Range.
const NoEnd = "\x00"

// Range is a key or a range of keys in etcd's convention: the keys from Key up to, but not
// including, End. If End is "", the range is the single key Key. If End is NoEnd, it is every key
// at or after Key.
type Range struct{ Key, End string }

// All is the range of all keys.
var All = Range{Key: "", End: NoEnd}

// Empty reports whether the range cannot contain any key.
func (r Range) Empty() bool { return r.End != "" && r.End != NoEnd && r.End <= r.Key }

// Contains reports whether a key is in the range.
func (r Range) Contains(key string) bool {
	if r.End == "" {
		return key == r.Key
	}
	return key >= r.Key && (r.End == NoEnd || key < r.End)
}

// Overlaps reports whether any key is in both ranges.
func (r Range) Overlaps(o Range) bool {
	return !r.Empty() && !o.Empty() && r.Reaches(o.Key) && o.Reaches(r.Key)
}

// Reaches reports whether a key is in the range or before it.
func (r Range) Reaches(key string) bool {
	switch {
	case len(r.End) > 1: // the common case, including the search for watchers of a key
		return key < r.End
	case r.End == "":
		return key <= r.Key
	}
	return r.End == NoEnd || key < r.End
}

// Covers reports whether every key of o is in the range.
func (r Range) Covers(o Range) bool {
	switch {
	case o.Empty():
		return true
	case r.Empty():
		return false
	case o.End == "":
		return r.Contains(o.Key)
	case o.End == NoEnd:
		return r.End == NoEnd && r.Key <= o.Key
	case r.End == "":
		return o.Key == r.Key && Span{o.Key, o.End}.Single()
	}
	return r.Key <= o.Key && (r.End == NoEnd || o.End <= r.End)
}

// Compare orders ranges by Key, then End, as strings. It returns 0 only for equal ranges.
func (r Range) Compare(o Range) int {
	if c := strings.Compare(r.Key, o.Key); c != 0 {
		return c
	}
	return strings.Compare(r.End, o.End)
}

// outreaches reports whether the range has keys that sort after all keys of o.
func (r Range) outreaches(o Range) bool {
	switch {
	case o.End == NoEnd:
		return false
	case r.End == NoEnd:
		return true
	case r.End == "" && o.End == "":
		return r.Key > o.Key
	case r.End == "":
		return r.Key >= o.End
	case o.End == "":
		return r.End > o.Key // the next key after o's single key is o.Key plus a zero byte
	}
	return r.End > o.End
}
