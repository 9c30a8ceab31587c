package top

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// TestScenarios runs the files of testdata: what a screen is told, the keys that are pressed, and
// the frames that it shows, each line behind a letter for its style. Rewrite the answers with
// -rewrite, and read the difference.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{Model: New(Options{Title: "test:2379", Interval: 2 * time.Second})}
		datadriven.RunTest(t, path, func(t *testing.T, c *datadriven.TestData) string {
			run, ok := commands[c.Cmd]
			if !ok {
				c.Fatalf(t, "unknown command %s", c.Cmd)
			}
			if said := run(s, args{t, c}); said != "" {
				return strings.TrimRight(said, "\n") + "\n"
			}
			return "ok\n"
		})
	})
}

type scenario struct{ *Model }

type args struct {
	t *testing.T
	c *datadriven.TestData
}

func (a args) text(name string) (text string) {
	a.c.MaybeScanArgs(a.t, name, &text)
	return text
}

func (a args) span(name string) time.Duration { return spanOf(a.t, a.text(name)) }

func spanOf(t *testing.T, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fields reads a line of "name=value" words. A value may be quoted.
func fields(t *testing.T, line string) map[string]string {
	out := make(map[string]string)
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		name, rest, _ := strings.Cut(line, "=")
		value, after, _ := strings.Cut(rest, " ")
		if q, err := strconv.QuotedPrefix(rest); err == nil {
			if value, err = strconv.Unquote(q); err != nil {
				t.Fatal(err)
			}
			after = rest[len(q):]
		}
		out[name], line = value, after
	}
	return out
}

func number64(text string) uint64 {
	n, _ := strconv.ParseUint(text, 0, 64)
	return n
}

// infos reads leases, one a line.
func (a args) infos() (list []leases.Info) {
	for line := range strings.Lines(a.c.Input) {
		f := fields(a.t, line)
		l := leases.Info{
			ID: lease.ID(number64(f["id"])), Token: lease.Token(number64(f["token"])),
			Name: f["name"], Owner: f["owner"], Principal: f["user"],
			TTL: spanOf(a.t, f["ttl"]), Remaining: spanOf(a.t, f["left"]),
			LockDelay: spanOf(a.t, f["delay"]), Delayed: f["delayed"] != "",
			KeyCount: int64(number64(f["count"])),
		}
		if f["label"] != "" {
			k, v, _ := strings.Cut(f["label"], ":")
			l.Labels = map[string]string{k: v}
		}
		if f["keys"] != "" {
			l.Keys = strings.Split(f["keys"], ",")
		}
		list = append(list, l)
	}
	return list
}

func histogramOf(text string) (h Histogram) {
	for pair := range strings.SplitSeq(text, ",") {
		bound, count, ok := strings.Cut(pair, ":")
		if !ok {
			continue
		}
		b, _ := strconv.ParseFloat(bound, 64)
		h.Bounds, h.Counts = append(h.Bounds, b), append(h.Counts, number64(count))
	}
	return h
}

// cluster reads members, one a line.
func (a args) cluster() Cluster {
	c := Cluster{Verdict: a.text("verdict")}
	if why := a.text("why"); why != "" {
		c.Reasons = strings.Split(why, ";")
	}
	for line := range strings.Lines(a.c.Input) {
		f := fields(a.t, line)
		count := func(name string) float64 { return float64(number64(f[name])) }
		m := Member{
			Name: f["name"], ID: f["name"], Role: f["role"], Version: "1.0", Error: f["error"],
			Took: spanOf(a.t, f["took"]), Behind: number64(f["behind"]), State: 123456,
		}
		if m.Error == "" && f["figures"] != "none" {
			m.Figures = &Figures{
				Leases: count("leases"), Granted: count("granted"), Renewed: count("renewed"),
				Expired: count("expired"), NearMisses: count("near"), CacheWaits: count("waits"),
				Overdue: spanOf(a.t, f["overdue"]), Sync: histogramOf(f["sync"]),
				Late: histogramOf(f["late"]),
			}
		}
		c.Members = append(c.Members, m)
	}
	return c
}

var kinds = map[string]leases.Kind{
	"granted": leases.Granted, "expired": leases.Expired, "revoked": leases.Revoked,
	"expiring": leases.Expiring, "renewed": leases.Renewed, "changed": leases.TTLChanged,
	"released": leases.Released,
}

func (s *scenario) event(a args) string {
	for _, l := range a.infos() {
		e := leases.Event{Kind: kinds[a.text("kind")], Lease: l, By: a.text("by")}
		s.Events([]leases.Event{e}, s.now)
	}
	return ""
}

func (s *scenario) press(a args) string {
	for _, k := range a.c.CmdArgs {
		key := Key(strings.ReplaceAll(k.Key, "-", " "))
		if s.Press(key) {
			return "ends"
		}
	}
	return ""
}

// type types each letter of a text.
func (s *scenario) typed(a args) string {
	for _, r := range strings.TrimSpace(a.c.Input) {
		s.Press(Key(r))
	}
	return ""
}

func (s *scenario) keys(a args) string {
	var kvs []store.KV
	for line := range strings.Lines(a.c.Input) {
		f := fields(a.t, line)
		kvs = append(kvs, store.KV{
			Key: f["key"], Lease: lease.ID(number64(f["lease"])),
			CreateRevision: int64(number64(f["rev"])),
		})
	}
	s.Keys(kvs, a.c.HasArg("more"), s.now)
	return ""
}

func (s *scenario) frame(a args) string {
	width, height := 80, 24
	a.c.MaybeScanArgs(a.t, "width", &width)
	a.c.MaybeScanArgs(a.t, "height", &height)
	var b strings.Builder
	lines := s.Frame(width, height)
	if len(lines) != height {
		a.t.Errorf("%d lines on a screen of %d", len(lines), height)
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "%c|%s|\n", " SHCWAF"[l.Style], l.Text)
	}
	return b.String()
}

// values are the page for programs, without what is above the list if that is asked for.
func (s *scenario) values(a args) string {
	rows := 20
	a.c.MaybeScanArgs(a.t, "rows", &rows)
	text, err := json.Marshal(s.Summary(rows))
	if err != nil {
		a.t.Fatal(err)
	}
	all := string(text)
	if a.c.HasArg("list") {
		all = all[strings.Index(all, `"pane"`):]
	}
	return strings.NewReplacer(`],"`, "],\n\"", `},"`, "},\n\"", `},{`, "},\n{").Replace(all)
}

var commands = map[string]func(*scenario, args) string{
	"at": func(s *scenario, a args) string {
		s.Tick(spanOf(a.t, a.c.CmdArgs[0].Key))
		return ""
	},
	"begin": func(s *scenario, _ args) string {
		s.Begin()
		return ""
	},
	"list": func(s *scenario, a args) string {
		if !s.List(a.infos(), a.span("asked")) {
			return "no more"
		}
		return ""
	},
	"finish": func(s *scenario, a args) string {
		s.Finish(a.span("asked"))
		return ""
	},
	"answer": func(s *scenario, a args) string {
		s.Answer(s.Wanted(), a.infos(), a.span("asked"))
		return ""
	},
	"describe": func(s *scenario, a args) string {
		if list := a.infos(); len(list) > 0 {
			s.Describe(list[0].ID, &list[0])
		} else {
			s.Describe(s.Opened(), nil)
		}
		return ""
	},
	"silence": func(s *scenario, a args) string {
		s.Silence(a.span("asked"), a.text("why"))
		return ""
	},
	"look": func(s *scenario, a args) string {
		s.Look(a.cluster(), a.span("from"))
		return ""
	},
	"wanted": func(s *scenario, _ args) string {
		ids := s.Wanted()
		slices.Sort(ids)
		return fmt.Sprint(ids)
	},
	"page": func(s *scenario, a args) string {
		rows := 20
		a.c.MaybeScanArgs(a.t, "rows", &rows)
		return s.Page(80, rows)
	},
	"values": (*scenario).values,
	"event":  (*scenario).event, "press": (*scenario).press, "type": (*scenario).typed,
	"no-keys": func(s *scenario, a args) string {
		s.NoKeys(a.text("why"))
		return ""
	},
	"keys": (*scenario).keys, "frame": (*scenario).frame,
}

// Goal: keys are read however the terminal's bytes come in pieces, and an escape alone is a key.
func TestDecode(t *testing.T) {
	for in, want := range map[string][]Key{
		"q": {"q"}, "jé": {"j", "é"}, "\x1b[A\x1b[B": {up, down}, "\x1bOH": {home}, "\x1b[5~": {pageUp},
		"\x1b": {escape}, "\x03": {interrupt}, "\x1b[Z\t\r\x7f": {backTab, tab, enter, backspace},
		"\x1b[1;5Cx": {"x"}, "\x1bq": {escape, "q"}, "\x00\xffq": {"q"}, "\x0c\x15": {Redraw, clearLine},
		"\x1b[": nil,
	} {
		for cut := range len(in) + 1 {
			keys, rest := Decode([]byte(in[:cut]), false)
			more, rest := Decode(append(rest, in[cut:]...), true)
			keys = append(keys, more...)
			if !slices.Equal(keys, want) || len(rest) > 0 {
				t.Errorf("%q, cut at %d, is %q and leaves %q, want %q", in, cut, keys, rest, want)
			}
		}
	}
}

// Goal: whatever names, owners and errors are, each line of each frame is as wide as the screen and
// has nothing that a terminal might obey, on screens of all sizes.
func TestHarmlessFrames(t *testing.T) {
	const evil = "a\x1b[2J\u009b31m\x7f\r\n\u202eb\xff 名前"
	m := New(Options{Title: evil})
	m.Begin()
	m.List([]leases.Info{{
		ID: 1, Name: evil, Owner: evil, Principal: evil, Labels: map[string]string{evil: evil},
		Keys: []string{evil}, TTL: time.Minute, Remaining: time.Minute,
	}}, 0)
	m.Finish(0)
	m.Events([]leases.Event{{
		Kind: leases.Revoked, By: evil, Lease: leases.Info{ID: 2, Name: evil},
	}}, 0)
	m.Keys([]store.KV{{Key: evil + "/1", Lease: 1}, {Key: evil + "/2", Lease: 2}}, false, 0)
	m.Look(Cluster{
		Verdict: "degraded", Reasons: []string{evil},
		Members: []Member{{Name: evil, ID: evil, Role: "leader", Version: evil}},
	}, 0)
	m.filter = "a"
	for _, k := range []Key{"1", "2", "3", "4", "5", "6", "1", enter, escape, "/", enter, "?", "x"} {
		m.Press(k)
		for _, width := range []int{1, 5, 79, 80, 200} {
			for _, height := range []int{1, 3, 8, 24, 60} {
				m.Tick(time.Second)
				checkFrame(t, m.Frame(width, height), width, height)
			}
		}
		m.Silence(0, evil)
	}
}

func checkFrame(t *testing.T, lines []Line, width, height int) {
	t.Helper()
	if len(lines) != height {
		t.Fatalf("%d lines on a screen of %d", len(lines), height)
	}
	for _, l := range lines {
		if i := strings.IndexFunc(l.Text, func(r rune) bool { return !strconv.IsPrint(r) }); i >= 0 {
			t.Errorf("a terminal may obey %q", l.Text)
		}
		if n := columnsIn(l.Text); n != width {
			t.Errorf("%q takes %d columns of %d", l.Text, n, width)
		}
	}
}

// columnsIn counts columns without the code under test, for the letters that the tests have.
func columnsIn(text string) (n int) {
	for _, r := range text {
		if n++; strings.ContainsRune("名前", r) {
			n++
		}
	}
	return n
}

// Goal: of more leases than a screen can have it takes so many, wants no more, and says so.
func TestTooManyLeases(t *testing.T) {
	m := New(Options{})
	m.Begin()
	list := make([]leases.Info, maxLeases+1)
	for i := range list {
		list[i] = leases.Info{ID: lease.ID(i + 1), TTL: time.Hour, Remaining: time.Hour}
	}
	if m.List(list, 0) {
		t.Error("the rest is wanted")
	}
	m.Finish(0)
	m.Events([]leases.Event{{Kind: leases.Granted, Lease: leases.Info{ID: -1}}}, 0)
	if n := len(m.book.all); n != maxLeases {
		t.Errorf("it has %d leases", n)
	}
	if text := m.Frame(80, 24)[3].Text; !strings.HasPrefix(text, "more than 200,000 leases") {
		t.Errorf("it says %q", text)
	}
	if n := len(m.Wanted()); n > 24+maxWanted {
		t.Errorf("it asks for %d leases at once", n)
	}
}
