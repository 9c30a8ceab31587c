package copies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/internal/keyrange"
)

// TestScenarios runs the scenarios in testdata, which issue commands to a cache. After each command
// that changes something, the output shows the pieces in key order, with their values and the
// revision at which they were read. It also shows the number of copies, their size without
// overhead, and the contents of the mirror. To update the output, run it with -rewrite and review
// the diff.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, func(t *testing.T, c *datadriven.TestData) string {
			run, ok := commands[c.Cmd]
			if !ok {
				c.Fatalf(t, "unknown command %s", c.Cmd)
			}
			answer := run(s, args{t, c})
			state := s.state()
			if state == s.was {
				return cmp.Or(answer, "ok") + "\n"
			}
			s.was = state
			return strings.TrimPrefix(answer+"\n", "\n") + state + "\n"
		})
	})
}

// scenario is a set and its reads in flight.
type scenario struct {
	set   *Set[pair]
	index *index
	fills map[string]*Fill
	was   string
}

func (s *scenario) state() string {
	var out []string
	pieces := 0
	for _, row := range s.set.view.rows {
		for _, p := range row {
			var values []string
			for _, v := range p.values {
				values = append(values, v.key+"="+v.value)
			}
			out = append(out, fmt.Sprintf("%s@%d%v", showRanges(p.Range()), p.revision, values))
			pieces++
		}
	}
	entries, bytes := s.set.Len()
	for p := s.set.order.next; p != &s.set.order; p = p.next {
		pieces--
		bytes -= overhead * (1 + len(p.piece.values))
	}
	if pieces != 0 {
		out = append(out, fmt.Sprintf("%d pieces are missing from the eviction order", pieces))
	}
	var mirror []string
	for _, k := range slices.Sorted(maps.Keys(s.index.found)) {
		if p := s.index.found[k]; p != nil {
			k += "=" + p.value
		}
		mirror = append(mirror, k)
	}
	if len(out) > 20 || bytes > 10_000 {
		out, mirror = []string{fmt.Sprint(len(out), " pieces")}, nil
	}
	return fmt.Sprintf("has %s\n%d copies, %d bytes; mirror %v", cmp.Or(strings.Join(out, " "), "-"),
		entries, bytes, mirror)
}

func showRanges(list ...keyrange.Range) string {
	if n := len(list); n > 20 {
		return fmt.Sprintf("%d ranges starting at %.9s", n, list[0].Key)
	}
	var out []string
	for _, r := range list {
		text := r.Key
		switch r.End {
		case "":
		case keyrange.NoEnd:
			text += "-"
		default:
			text += "-" + r.End
		}
		out = append(out, strings.ReplaceAll(text, "\x00", "'"))
	}
	return cmp.Or(strings.Join(out, ","), "nothing")
}

type args struct {
	t *testing.T
	c *datadriven.TestData
}

func (a args) list(name string) (list []string) {
	a.c.MaybeScanArgs(a.t, name, &list)
	return list
}

func (a args) int(name string) (n int) {
	a.c.MaybeScanArgs(a.t, name, &n)
	return n
}

// ranges parses ranges: "b" is a single key, "b-" all keys from b on, "a-c" the keys from a up to
// c, and "none-e" an empty range that ends at e.
func (a args) ranges(name string) (out []keyrange.Range) {
	for _, text := range a.list(name) {
		from, to, more := strings.Cut(text, "-")
		switch {
		case from == "none":
			from = "x"
		case more && to == "":
			to = keyrange.NoEnd
		}
		out = append(out, keyrange.Range{Key: from, End: to})
	}
	return out
}

func (a args) one(name string) keyrange.Range { return a.ranges(name)[0] }

func (a args) name() string { return a.c.CmdArgs[0].Key }

func (a args) pairs() (out []pair) {
	for _, text := range a.list("values") {
		k, v, _ := strings.Cut(text, ":")
		out = append(out, pair{k, v})
	}
	return out
}

func showReport(t *Report) string {
	return fmt.Sprintf("open %d, #%d of term %d, dropped %s", t.Open, t.Seq, t.Term,
		showRanges(t.Dropped...))
}

func showPairs(list []pair) string {
	var out []string
	for _, p := range list {
		out = append(out, p.key+"="+p.value)
	}
	return fmt.Sprint(out)
}

var commands = map[string]func(s *scenario, a args) string{
	"new": func(s *scenario, a args) string {
		set, x := newSet(Config[pair]{
			Holds: a.ranges("holds"), MaxEntries: a.int("entries"), MaxBytes: a.int("bytes"),
		})
		if a.c.HasArg("bare") { // without a mirror or marks
			set.cfg.Mirror, set.cfg.NewMark = nil, nil
		}
		*s = scenario{set: set, index: x, fills: make(map[string]*Fill)}
		s.was = s.state()
		return ""
	},
	"opened": func(s *scenario, a args) string {
		s.set.Opened(uint64(a.int("term")))
		return fmt.Sprintf("open: %v", s.set.Open())
	},
	"reopen": func(s *scenario, _ args) string { return showRanges(s.set.Reopen()...) },
	"begin": func(s *scenario, a args) string {
		f := s.set.Begin(a.one("range"))
		if f == nil {
			return "cannot be kept"
		}
		s.fills[a.name()] = f
		return "reading"
	},
	"complete": func(s *scenario, a args) string {
		f := s.fills[a.name()]
		return fmt.Sprintf("spoiled: %v, kept: %v", f.spoiled, s.set.Complete(f, Answer[pair]{
			Term: uint64(a.int("term")), Revision: int64(a.int("revision")), Values: a.pairs(),
		}))
	},
	"cancel": func(s *scenario, a args) string {
		s.set.Cancel(s.fills[a.name()])
		return fmt.Sprintf("%d reads in flight", len(s.set.fills))
	},
	// read starts and completes a read of each range in the current term.
	"read": func(s *scenario, a args) string {
		for _, r := range a.ranges("ranges") {
			if f := s.set.Begin(r); f == nil || !s.set.Complete(f, Answer[pair]{
				Term: s.set.term, Revision: int64(a.int("revision")), Values: a.pairs(),
			}) {
				return "not kept"
			}
		}
		return ""
	},
	// many reads the given number of single keys, named prefix000, prefix001 and so on.
	"many": func(s *scenario, a args) string {
		prefix := strings.Join(a.list("prefix"), "")
		for i := range a.int("keys") {
			key := fmt.Sprintf("%s%03d%s", prefix, i, strings.Repeat("x", a.int("long")))
			f := s.set.Begin(keyrange.Range{Key: key})
			s.set.Complete(f, Answer[pair]{Term: s.set.term})
		}
		return ""
	},
	"get": func(s *scenario, a args) string {
		value, m, known := s.set.View().Get(a.name())
		switch {
		case !known:
			return "unknown"
		case a.c.HasArg("used"):
			m.(*mark).used = true
		}
		if value == nil {
			return "no such key"
		}
		return value.key + "=" + value.value
	},
	"look": func(s *scenario, a args) string {
		values, revision, _, known := s.set.View().Range(a.one("range"))
		return fmt.Sprintf("%s at %d, known: %v", showPairs(values), revision, known)
	},
	"range": func(s *scenario, a args) string {
		values, revision, gaps := s.set.Range(a.one("range"))
		if len(gaps) > 0 {
			return "missing: " + showRanges(gaps...)
		}
		return fmt.Sprintf("%s at %d", showPairs(values), revision)
	},
	// fill reads the missing parts of a range.
	"fill": func(s *scenario, a args) string {
		_, _, gaps := s.set.Range(a.one("range"))
		for _, g := range gaps {
			s.set.Complete(s.set.Begin(g), Answer[pair]{
				Term: s.set.term, Revision: int64(a.int("revision")),
			})
		}
		return ""
	},
	"invalidate": func(s *scenario, a args) string {
		s.set.Invalidate(uint64(a.int("term")), uint64(a.int("seq")), a.ranges("drop"))
		return ""
	},
	"drop": func(s *scenario, a args) string {
		s.set.Drop(a.ranges("ranges")...)
		return ""
	},
	"report": func(s *scenario, a args) string {
		if report, ok := s.set.TakeReport(a.c.HasArg("lazy")); ok {
			return showReport(&report)
		}
		return "nothing to report"
	},
	"close": func(s *scenario, _ args) string {
		report := s.set.Close()
		return fmt.Sprintf("%s; open: %v", showReport(&report), s.set.Open())
	},
	"clear": func(s *scenario, _ args) string {
		s.set.clear()
		return ""
	},
}
