package keyrange

import (
	"slices"
	"strings"
)

// Span is the keys from From up to, but not including, To. If To is "", the span is unbounded.
// Methods that take another span require both spans to be non-empty.
type Span struct{ From, To string }

// Span returns the same keys as a span. It allocates if the range is a single key.
func (r Range) Span() Span {
	switch r.End {
	case "":
		return Span{r.Key, r.Key + "\x00"} // up to the next key
	case NoEnd:
		return Span{r.Key, ""}
	default:
		return Span{r.Key, r.End}
	}
}

// Range returns the same keys as a range. It uses the short form for a single key. The span must
// not be empty.
func (s Span) Range() Range {
	switch {
	case s.To == "":
		return Range{s.From, NoEnd}
	case s.Single():
		return Range{Key: s.From}
	default:
		return Range{s.From, s.To}
	}
}

// Single reports whether the span is a single key.
func (s Span) Single() bool {
	n := len(s.From)
	return len(s.To) == n+1 && s.To[n] == 0 && s.To[:n] == s.From
}

// Empty reports whether the span cannot contain any key.
func (s Span) Empty() bool { return s.To != "" && s.To <= s.From }

// Has reports whether a key is in the span.
func (s Span) Has(key string) bool { return s.From <= key && (s.To == "" || key < s.To) }

// Covers reports whether every key of o is in the span.
func (s Span) Covers(o Span) bool {
	return s.From <= o.From && (s.To == "" || o.To != "" && o.To <= s.To)
}

// Overlaps reports whether any key is in both spans.
func (s Span) Overlaps(o Span) bool {
	return (o.To == "" || s.From < o.To) && (s.To == "" || o.From < s.To)
}

// Common returns the intersection of two overlapping spans.
func (s Span) Common(o Span) Span {
	return Span{max(s.From, o.From), earlier(s.To, o.To)}
}

// Without returns the spans in list with the keys of o removed. It does not modify list.
func Without(list []Span, o Span) []Span {
	out := list[:0:0]
	for _, s := range list {
		if !s.Overlaps(o) {
			out = append(out, s)
			continue
		}
		if s.From < o.From {
			out = append(out, Span{s.From, o.From})
		}
		if o.To != "" && (s.To == "" || o.To < s.To) {
			out = append(out, Span{o.To, s.To})
		}
	}
	return out
}

// Join sorts spans, drops empty ones, and merges spans that touch or overlap. It modifies the list.
func Join(list []Span) []Span {
	slices.SortFunc(list, func(a, b Span) int { return strings.Compare(a.From, b.From) })
	out := list[:0]
	for _, s := range list {
		if s.Empty() {
			continue
		}
		if n := len(out); n > 0 && (out[n-1].To == "" || s.From <= out[n-1].To) {
			out[n-1].To = Later(out[n-1].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Later returns the later of two span ends.
func Later(a, b string) string {
	if a == "" || b == "" {
		return ""
	}
	return max(a, b)
}

func earlier(a, b string) string {
	if a == "" || b == "" {
		return max(a, b)
	}
	return min(a, b)
}
