package keyrange

import "strings"

// NoEnd as the end of a Range means that it has none.
const NoEnd = "\x00"

// Range is a key or a range of keys, by etcd's convention: the keys from Key on
// that are before End; if End is "" the one key; if it is NoEnd all from Key on.
type Range struct{ Key, End string }

// All is every key.
var All = Range{Key: "", End: NoEnd}

// Empty reports whether no key can lie in the range.
func (r Range) Empty() bool { return r.End != "" && r.End != NoEnd && r.End <= r.Key }

// Contains reports whether a key lies in the range.
func (r Range) Contains(key string) bool {
	if r.End == "" {
		return key == r.Key
	}
	return key >= r.Key && (r.End == NoEnd || key < r.End)
}

// Overlaps reports whether there is a key that lies in both ranges.
func (r Range) Overlaps(o Range) bool {
	return !r.Empty() && !o.Empty() && r.Reaches(o.Key) && o.Reaches(r.Key)
}

// Reaches reports whether a key lies in the range or before it.
func (r Range) Reaches(key string) bool {
	switch {
	case len(r.End) > 1: // nearly always, and in the search for who watches a key
		return key < r.End
	case r.End == "":
		return key <= r.Key
	}
	return r.End == NoEnd || key < r.End
}

// Covers reports whether every key of o lies in the range.
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

// Compare orders ranges by key and then end, as texts. It is 0 only for equal ones.
func (r Range) Compare(o Range) int {
	if c := strings.Compare(r.Key, o.Key); c != 0 {
		return c
	}
	return strings.Compare(r.End, o.End)
}

// outreaches reports whether the range has keys behind all of another.
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
		return r.End > o.Key // behind o's key comes that with a zero byte, at the least
	}
	return r.End > o.End
}
