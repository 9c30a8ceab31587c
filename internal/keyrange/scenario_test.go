package keyrange

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs the files in testdata/scenarios, which contain ranges and their meaning. To
// update the answers, run it with -rewrite and review the diff.
//
// A range is {a}, a single key; [a,b), the keys from a up to but not including b; or [a..), all
// keys from a on. Keys use Go's escapes.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		var tree Tree[string]
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			words := strings.Fields(d.Input)
			if d.Cmd == "prefix" {
				return lines(words, func(w string) string { return show(OfPrefix(key(t, w))) })
			}
			list := make([]Range, len(words))
			for i, w := range words {
				list[i] = read(t, w)
			}
			switch d.Cmd {
			case "look":
				return lines(list, look)
			case "compare": // compares the first with each of the others
				return lines(list[1:], func(r Range) string {
					return show(r) + ": " + relation(list[0], r)
				})
			case "join":
				return lines(Join(toSpans(list)), func(s Span) string { return show(s.Range()) })
			case "without": // removes the first range from the others
				left := Without(toSpans(list[1:]), list[0].Span())
				return lines(left, func(s Span) string { return show(s.Range()) })
			case "put":
				for _, r := range list {
					tree.Put(r, show(r))
				}
			case "remove":
				for _, r := range list {
					tree.Remove(r)
				}
			case "find":
				return lines(list, func(r Range) string {
					found := slices.Collect(tree.Overlapping(r))
					return show(r) + ": " + cmp.Or(strings.Join(found, " "), "nothing")
				})
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return fmt.Sprintf("%d ranges\n", len(slices.Collect(tree.All())))
		})
	})
}

// lines describes each element on a separate line.
func lines[T any](list []T, say func(T) string) string {
	var b strings.Builder
	for _, v := range list {
		fmt.Fprintln(&b, say(v))
	}
	return b.String()
}

func toSpans(list []Range) (spans []Span) {
	for _, r := range list {
		spans = append(spans, r.Span())
	}
	return spans
}

// key parses a key with escapes.
func key(t *testing.T, text string) string {
	t.Helper()
	k, err := strconv.Unquote(`"` + text + `"`)
	if err != nil {
		t.Fatalf("key %s: %v", text, err)
	}
	return k
}

func read(t *testing.T, text string) Range {
	t.Helper()
	inner := text[1 : len(text)-1]
	if text[0] == '{' {
		return Range{Key: key(t, inner)}
	}
	if from, ok := strings.CutSuffix(inner, ".."); ok {
		return Range{key(t, from), NoEnd}
	}
	from, to, ok := strings.Cut(inner, ",")
	if !ok {
		t.Fatalf("%s is no range", text)
	}
	return Range{key(t, from), key(t, to)}
}

func show(r Range) string {
	quoted := func(k string) string { return strings.Trim(strconv.QuoteToASCII(k), `"`) }
	switch r.End {
	case "":
		return "{" + quoted(r.Key) + "}"
	case NoEnd:
		return "[" + quoted(r.Key) + "..)"
	}
	return "[" + quoted(r.Key) + "," + quoted(r.End) + ")"
}

// look formats a range in its API form and as a span.
func look(r Range) string {
	text := fmt.Sprintf("key %q end %q", r.Key, r.End)
	if r.Empty() {
		return text + ": empty"
	}
	s := r.Span()
	text += fmt.Sprintf(": from %q to %q", s.From, s.To)
	if back := s.Range(); back != r {
		text += ", in short " + show(back)
	}
	return text
}

// relation describes how two ranges relate.
func relation(r, o Range) string {
	switch {
	case r.Covers(o) && o.Covers(r):
		return "the same keys"
	case r.Covers(o):
		return "within"
	case o.Covers(r):
		return "around"
	case r.Overlaps(o):
		return "overlaps"
	}
	return "apart"
}
