package directory

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// TestScenarios runs the scripts in testdata. Each command is an input to a leader's directory. The
// output lists its effects: writes that proceed, ranges that caches must drop and through which
// members, and when the directory must be called again. Invariants are checked after each command.
// Run with -rewrite to update the expected output, and review the diff.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, func(t *testing.T, c *datadriven.TestData) string {
			run, ok := commands[c.Cmd]
			if !ok {
				c.Fatalf(t, "unknown command %s", c.Cmd)
			}
			said := run(s, args{t, c})
			mustBeSound(s.d)
			lines := s.effects()
			if said != "" || len(lines) == 0 {
				lines = slices.Insert(lines, 0, cmp.Or(said, "ok"))
			}
			return strings.Join(lines, "\n") + "\n"
		})
	})
}

// scenario is a directory together with the state that the script describes.
type scenario struct {
	d      *Directory
	keys   map[lease.ID][]string
	expiry map[lease.ID]lease.Instant
	writes map[string]*Write // by name
	next   string
}

func (s *scenario) Keys(id lease.ID) iter.Seq[string] { return slices.Values(s.keys[id]) }

func (s *scenario) Expiry(id lease.ID) (lease.Instant, bool) {
	at, ok := s.expiry[id]
	return at, ok
}

// effects returns the effects of a command, one per line.
func (s *scenario) effects() (out []string) {
	for _, w := range s.d.Ready() {
		out = append(out, fmt.Sprintf("%s goes on", w.Owner))
	}
	for _, n := range s.d.Invalidations() {
		out = append(out, fmt.Sprintf("cache %d/%d is told by %v to drop, #%d: %s", n.ID, n.Token,
			n.Members, n.Seq, showRanges(n.Drop)))
	}
	for _, id := range s.d.TakeAcknowledged() {
		out = append(out, fmt.Sprintf("lease %d owes nothing: %v", id, !s.d.Pending(id)))
	}
	for _, x := range s.d.TakeSlow() {
		out = append(out, fmt.Sprintf("cache %d/%d was slow: %d ms", x.ID, x.Token, x.Waited))
	}
	if list, news := s.d.Late(); news {
		out = append(out, fmt.Sprintf("slow now: %v", list))
	}
	for _, ms := range s.d.TakeWaits() {
		out = append(out, fmt.Sprintf("it waited for %d ms", ms))
	}
	next := "nothing to wait for"
	if at, ok := s.d.Next(); ok {
		next = fmt.Sprintf("looks again at %d", at)
	}
	if next != s.next {
		s.next = next
		out = append(out, next)
	}
	return out
}

func showRanges(list []keyrange.Range) string {
	var out []string
	for _, r := range list {
		out = append(out, strings.TrimSuffix(r.Key+"-"+r.End, "-"))
	}
	return strings.Join(out, ",")
}

// args reads the arguments of a command.
type args struct {
	t *testing.T
	c *datadriven.TestData
}

func (a args) list(name string) (list []string) {
	a.c.MaybeScanArgs(a.t, name, &list)
	return list
}

func (a args) has(name string) bool { return a.c.HasArg(name) }

func (a args) int(name string) (n int) {
	a.c.MaybeScanArgs(a.t, name, &n)
	return n
}

func (a args) id() lease.ID { return lease.ID(a.int("id")) }

func (a args) token() lease.Token { return lease.Token(a.int("token")) }

// ranges parses ranges. "b" is a single key, and "a-c" is the range from a up to c. many=70 adds
// the keys k00 to k69.
func (a args) ranges(name string) (out []keyrange.Range) {
	for _, text := range a.list(name) {
		from, to, _ := strings.Cut(text, "-")
		out = append(out, keyrange.Range{Key: from, End: to})
	}
	for i := range a.int("many") {
		out = append(out, keyrange.Range{Key: fmt.Sprintf("k%02d", i)})
	}
	return out
}

func (a args) ids(name string) (out []lease.ID) {
	a.c.MaybeScanArgs(a.t, name, &out)
	return out
}

func (a args) origin() Origin {
	member := uint64(max(a.int("by"), 1))
	return Origin{
		Member: member, Incarnation: uint64(a.int("incarnation")), Number: uint64(a.int("number")),
	}
}

func (a args) write() *Write {
	return &Write{
		Owner: a.c.CmdArgs[0].Key, Touches: a.ranges("touches"), Ends: a.ids("ends"),
		Renews: a.ids("renews"), Attaches: a.ids("attaches"), AttachesAny: a.has("attaches-any"),
		Urgent: a.has("urgent"),
	}
}

var commands = map[string]func(s *scenario, a args) string{
	"new": func(s *scenario, a args) string {
		*s = scenario{
			keys: make(map[lease.ID][]string), expiry: make(map[lease.ID]lease.Instant),
			writes: make(map[string]*Write), next: "nothing to wait for",
		}
		s.d = New(uint64(max(a.int("term"), 1)), s, Limits{
			Spans: a.int("spans"), AllSpans: a.int("all-spans"), Drops: a.int("drops"),
			DropBytes: a.int("bytes"), Waiting: a.int("waiting"), Slow: lease.TTL(a.int("slow")),
			Invalidated: a.int("told"), Freed: a.int("freed"),
		})
		return ""
	},
	"lease": func(s *scenario, a args) string {
		s.keys[a.id()], s.expiry[a.id()] = a.list("keys"), lease.Instant(a.int("until"))
		if a.has("gone") {
			delete(s.expiry, a.id())
		}
		return ""
	},
	"hold": func(s *scenario, a args) string {
		s.d.Hold(a.id(), a.token(), a.ranges("ranges"), a.has("wide"))
		return ""
	},
	"release": func(s *scenario, a args) string {
		s.d.Release(a.token())
		return ""
	},
	"orphan": func(s *scenario, a args) string {
		s.d.Orphan(Orphan{
			ID: a.id(), Token: a.token(), Ranges: a.ranges("ranges"), TTL: lease.TTL(a.int("ttl")),
			Until: lease.Instant(a.int("until")),
		}, a.has("wide"))
		return ""
	},
	"stopped": func(s *scenario, a args) string {
		list := s.d.TakeStopped(max(a.int("most"), 1))
		if a.has("not-dropped") {
			s.d.NotDropped(list)
		}
		return fmt.Sprintf("orphans that have nothing: %v", list)
	},
	"not-dropped": func(s *scenario, a args) string {
		s.d.NotDropped([]lease.Token{a.token()})
		return ""
	},
	"open": func(s *scenario, a args) string {
		return fmt.Sprintf("taken: %v", s.d.Open(Opening{
			ID: a.id(), Token: a.token(), Has: a.ranges("has"), From: a.origin(),
		}))
	},
	"fill": func(s *scenario, a args) string {
		return fmt.Sprintf("may be cached: %v", s.d.Fill(Fill{
			ID: a.id(), Token: a.token(), Ranges: a.ranges("ranges"), From: a.origin(),
		}))
	},
	"ack": func(s *scenario, a args) string {
		s.d.Ack(Ack{
			ID: a.id(), Token: a.token(), Term: uint64(a.int("term")), Seq: uint64(a.int("seq")),
			Open: uint64(a.int("open")), Dropped: a.ranges("dropped"), From: a.origin(),
		})
		return ""
	},
	"write": func(s *scenario, a args) string {
		w := a.write()
		s.writes[w.Owner.(string)] = w
		concerns := s.d.Concerns(w)
		switch now, err := s.d.Admit(w); {
		case err != nil && !now:
			return "error: " + err.Error()
		case now && concerns:
			return "goes on at once"
		case now:
			return "is of no concern"
		}
		return "waits"
	},
	"finish": func(s *scenario, a args) string {
		s.d.Finish(s.writes[a.c.CmdArgs[0].Key])
		return ""
	},
	"admitted": func(s *scenario, a args) string {
		s.d.Admitted(a.write())
		return ""
	},
	"settled": func(s *scenario, a args) string {
		s.d.Settled(uint64(a.int("below")))
		return ""
	},
	"advance": func(s *scenario, a args) string {
		s.d.Advance(lease.Instant(a.int("to")))
		return ""
	},
	"step": func(s *scenario, _ args) string {
		s.d.NextStep()
		s.d.Advance(s.d.now)
		return ""
	},
	"refresh": func(s *scenario, _ args) string {
		s.d.Refresh(s.d.now)
		return ""
	},
	"recheck": func(s *scenario, _ args) string {
		s.d.Recheck()
		return ""
	},
	"stats": func(s *scenario, _ args) string {
		var names []string
		for _, w := range s.d.Waiting() {
			names = append(names, w.Owner.(string))
		}
		return fmt.Sprintf("%+v, waiting are %v, idle: %v", s.d.Stats(), names, s.d.Idle())
	},
	"knows": func(s *scenario, a args) string {
		known := s.d.holds.find(a.id(), a.token()) != nil
		return fmt.Sprintf("known: %v, owes: %v", known, s.d.Pending(a.id()))
	},
}
