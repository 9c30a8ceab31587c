package lease

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs the files in testdata, which contain commands, their expected answers, and
// prose in between. To update the answers, run it with -rewrite and review the diff.
//
// A scenario has one or more members named a, b, and so on. All members apply each replicated
// command; they must return the same answer and end up in the same state (S3). Other commands go to
// the member named by on=, or to a by default. The invariants are checked after every command.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			run, ok := commands[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			a := args{t, d}
			out := run(s, a)
			for i, m := range s.members {
				if err := m.CheckInvariants(); err != nil {
					d.Fatalf(t, "member %c: %v", 'a'+i, err)
				}
				if err := sameState(s.members[0], m); err != nil {
					d.Fatalf(t, "member %c: %v", 'a'+i, err)
				}
			}
			return out
		})
	})
}

type scenario struct {
	cfg     Config
	members []*Lessor
	decided []Due        // the decisions last returned by due
	silent  []Checkpoint // the checkpoints last returned by silent
}

type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) string(name string) string {
	var list []string
	a.d.MaybeScanArgs(a.t, name, &list)
	return strings.Join(list, ",")
}

func (a args) has(name string) bool { return a.d.HasArg(name) }

func (a args) int(name string, otherwise int) int {
	a.d.MaybeScanArgs(a.t, name, &otherwise)
	return otherwise
}

func (a args) id() ID         { return ID(a.int("id", 0)) }
func (a args) group() GroupID { return GroupID(a.int("group", 0)) }

func (a args) secret() (s Secret) {
	copy(s[:], a.string("secret"))
	return s
}

func (a args) ttl(name string) TTL {
	s := a.string(name)
	if s == "" {
		return 0
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return TTL(n)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", name, err)
	}
	return TTL(d.Milliseconds())
}

func (a args) on(s *scenario) *Lessor {
	m := a.string("on")
	if m == "" {
		m = "a"
	}
	return s.members[m[0]-'a']
}

// all applies a replicated command on all members and requires the same answer from each.
func (s *scenario) all(a args, f func(l *Lessor) string) string {
	first := f(s.members[0])
	for i, m := range s.members[1:] {
		if out := f(m); out != first {
			a.d.Fatalf(a.t, "member %c answers %q, member a %q", 'b'+i, out, first)
		}
	}
	return first
}

var commands = map[string]func(s *scenario, a args) string{
	"new": func(s *scenario, a args) string {
		s.cfg = Config{
			MinTTL: a.ttl("min"), MaxTTL: a.ttl("max"), CheckpointInterval: a.ttl("interval"),
			MaxKeys: a.int("max-keys", 0), SpreadRate: a.int("rate", 0), Untended: a.ttl("untended"),
		}
		s.members, s.decided, s.silent = nil, nil, nil
		for range a.int("members", 1) {
			s.members = append(s.members, New(s.cfg))
		}
		return "ok"
	},
	"grant": func(s *scenario, a args) string {
		terms := Terms{
			ID: a.id(), TTL: a.ttl("ttl"), Name: a.string("name"), Owner: a.string("owner"),
			RequestID: a.string("request"),
		}
		if label := a.string("label"); label != "" {
			k, v, _ := strings.Cut(label, ":")
			terms.Labels = map[string]string{k: v}
		}
		terms.LockDelay, terms.KeepKeys = a.ttl("delay"), a.has("keep-keys")
		terms.Secret = a.secret()
		return s.all(a, func(l *Lessor) string {
			info, err := l.Grant(terms)
			return orError(showInfo(info), err)
		})
	},
	"revoke": func(s *scenario, a args) string {
		return s.all(a, func(l *Lessor) string {
			e, err := l.Revoke(a.id())
			return orError(showKeys(e.Keys), err)
		})
	},
	"change-ttl": func(s *scenario, a args) string {
		return s.all(a, func(l *Lessor) string {
			info, err := l.ChangeTTL(a.id(), Token(a.int("token", 0)), a.ttl("ttl"))
			return orError(showInfo(info), err)
		})
	},
	"touch": func(s *scenario, a args) string {
		return s.all(a, func(l *Lessor) string {
			info, err := l.Touch(a.id(), Token(a.int("token", 0)))
			return orError(showInfo(info), err)
		})
	},
	"hand-over": func(s *scenario, a args) string {
		return s.all(a, func(l *Lessor) string {
			token := Token(a.int("token", 0))
			info, err := l.HandOver(a.id(), token, Terms{Owner: a.string("owner"), Secret: a.secret()})
			return orError(showInfo(info), err)
		})
	},
	"resume": func(s *scenario, a args) string {
		return s.all(a, func(l *Lessor) string {
			info, err := l.Resume(a.id(), a.secret())
			return orError(showInfo(info), err)
		})
	},
	"attach": func(s *scenario, a args) string {
		return s.all(a, func(l *Lessor) string {
			return orError("ok", l.Attach(a.id(), a.string("key")))
		})
	},
	"detach": func(s *scenario, a args) string {
		return s.all(a, func(l *Lessor) string {
			l.Detach(a.string("key"))
			return "ok"
		})
	},
	"lease-of": func(s *scenario, a args) string {
		return fmt.Sprint(a.on(s).LeaseOf(a.string("key")))
	},
	"keys": func(s *scenario, a args) string {
		l := a.on(s)
		return fmt.Sprintf("%s, %d attached in all", showKeys(l.Keys(a.id())), l.Attached())
	},
	"advance": func(s *scenario, a args) string {
		for i, m := range s.members {
			if !a.has("on") || a.on(s) == s.members[i] {
				m.Advance(Instant(a.ttl("to")))
			}
		}
		return "ok"
	},
	"promote": func(s *scenario, a args) string {
		l := a.on(s)
		l.Promote(l.now)
		return "ok"
	},
	"demote": func(s *scenario, a args) string {
		a.on(s).Demote()
		return "ok"
	},
	"recount": func(s *scenario, a args) string {
		a.on(s).Recount()
		return "ok"
	},
	"renew": func(s *scenario, a args) string {
		n, err := a.on(s).Renew(a.id(), Token(a.int("token", 0)))
		out := "ttl " + n.TTL.show()
		if n.Clear {
			out += ", to be cleared first"
		}
		return orError(out, err)
	},
	"open-group": func(s *scenario, a args) string {
		a.on(s).OpenGroup(a.group(), a.ttl("ttl"))
		return "ok"
	},
	"join": func(s *scenario, a args) string {
		if !a.on(s).Join(a.group(), a.id(), Token(a.int("token", 0))) {
			return "refused"
		}
		return "ok"
	},
	"leave": func(s *scenario, a args) string {
		asOf := LastRenewal
		if a.has("as-of") {
			asOf = Instant(a.ttl("as-of"))
		}
		a.on(s).Leave(a.group(), a.id(), asOf)
		return "ok"
	},
	"renew-group": func(s *scenario, a args) string {
		ttl, ok := a.on(s).RenewGroup(a.group())
		if !ok {
			return "the group is over"
		}
		return "ttl " + ttl.show()
	},
	"left": func(s *scenario, a args) string {
		left, ok := a.on(s).Left(a.group())
		if !ok {
			return "the group is over"
		}
		return fmt.Sprintf("left: %d", left)
	},
	"end-group": func(s *scenario, a args) string {
		a.on(s).EndGroup(a.group(), !a.has("tended"))
		return "ok"
	},
	"group": func(s *scenario, a args) string {
		return fmt.Sprintf("in group %d", a.on(s).GroupOf(a.id()))
	},
	"abandon": func(s *scenario, a args) string {
		a.on(s).Abandon(a.id())
		return "ok"
	},
	"due": func(s *scenario, a args) string {
		due := a.on(s).Due(a.int("max", 100))
		if len(due) == 0 {
			return "nothing"
		}
		s.decided = due
		var out []string
		for _, d := range due {
			out = append(out, fmt.Sprintf("lease %d token %d stamp %d, %s late",
				d.ID, d.Token, d.Stamp, d.Late.show()))
		}
		return strings.Join(out, "\n")
	},
	"expire": func(s *scenario, a args) string {
		if a.has("id") {
			s.decided = []Due{{
				ID: a.id(), Token: Token(a.int("token", 0)), Stamp: uint64(a.int("stamp", 0)),
			}}
		}
		return s.all(a, func(l *Lessor) string {
			var out []string
			for _, d := range s.decided {
				e, ok := l.Expire(d)
				switch {
				case !ok:
					out = append(out, fmt.Sprintf("lease %d is not the one", d.ID))
				case !e.Gone:
					out = append(out, fmt.Sprintf("lease %d is over, and delayed", d.ID))
				case e.Keep:
					out = append(out, fmt.Sprintf("lease %d is gone, without %s", d.ID, showKeys(e.Keys)))
				default:
					out = append(out, fmt.Sprintf("lease %d is gone, with %s", d.ID, showKeys(e.Keys)))
				}
			}
			return strings.Join(out, "\n")
		})
	},
	"silent": func(s *scenario, a args) string {
		silent := a.on(s).Silent(a.int("max", 100))
		if len(silent) == 0 {
			return "nothing"
		}
		s.silent = silent
		var out []string
		for _, c := range silent {
			out = append(out, fmt.Sprintf("lease %d token %d, %s remaining",
				c.ID, c.Token, c.Remaining.show()))
		}
		return strings.Join(out, "\n")
	},
	"checkpoint-all": func(s *scenario, a args) string {
		a.on(s).CheckpointAll()
		return "ok"
	},
	"checkpoint": func(s *scenario, a args) string {
		if a.has("id") {
			info, _ := s.members[0].Lookup(a.id())
			s.silent = []Checkpoint{{
				ID: a.id(), Token: Token(a.int("token", int(info.Token))), Remaining: a.ttl("remaining"),
				Stamp: uint64(a.int("stamp", 0)),
			}}
		}
		return s.all(a, func(l *Lessor) string {
			l.Checkpoint(s.silent)
			var out []string
			for _, c := range s.silent {
				out = append(out, l.show(c.ID))
			}
			return strings.Join(out, "\n")
		})
	},
	"reinstate": func(s *scenario, a args) string {
		list := s.decided
		if a.has("id") {
			list = []Due{{ID: a.id(), Token: Token(a.int("token", 0))}}
		}
		a.on(s).Reinstate(list)
		return "ok"
	},
	"unreport": func(s *scenario, a args) string {
		list := s.silent
		if a.has("id") {
			list = []Checkpoint{{ID: a.id(), Token: Token(a.int("token", 0))}}
		}
		a.on(s).Unreport(list)
		return "ok"
	},
	"next": func(s *scenario, a args) string {
		at, ok := a.on(s).Next()
		if !ok {
			return "nothing to wait for"
		}
		return "look again at " + TTL(at).show()
	},
	"remaining": func(s *scenario, a args) string {
		ttl, ok := a.on(s).Remaining(a.id())
		if !ok {
			return "no such lease"
		}
		return ttl.show()
	},
	"lookup": func(s *scenario, a args) string {
		l := a.on(s)
		if a.has("name") {
			info, ok := l.ByName(a.string("name"))
			if !ok {
				return "no such name"
			}
			return showInfo(info)
		}
		return l.show(a.id())
	},
	"leases": func(s *scenario, a args) string {
		l := a.on(s)
		out := []string{fmt.Sprintf("%d leases", l.Len())}
		for info := range l.Leases() {
			out = append(out, showInfo(info))
		}
		return strings.Join(out, "\n")
	},
	"named": func(s *scenario, a args) string {
		out := []string{"in order of name"}
		for info := range a.on(s).Named(a.string("prefix")) {
			out = append(out, showInfo(info))
		}
		return strings.Join(out, "\n")
	},
	// recover replaces a member with one that starts from another member's state with its clock at
	// zero. It attaches the keys as the store would.
	"recover": func(s *scenario, a args) string {
		from := s.members[a.string("from")[0]-'a']
		v := from.View()
		state := v.State()
		state.Leases = slices.Collect(v.All())
		state.Generation = uint64(a.int("generation", int(state.Generation)))
		l := New(s.cfg)
		if err := l.Recover(state); err != nil {
			return orError("", err)
		}
		for info := range from.Leases() {
			for _, k := range from.Keys(info.ID) {
				if err := l.Reattach(0, maps.All(map[ID]string{info.ID: k})); err != nil {
					a.d.Fatalf(a.t, "attach %s: %v", k, err)
				}
			}
		}
		for i, m := range s.members {
			if m == a.on(s) {
				s.members[i] = l
			}
		}
		return fmt.Sprintf("%d leases, %d keys", l.Len(), l.Attached())
	},
}

func (t TTL) show() string { return (time.Duration(t) * time.Millisecond).String() }

func orError(out string, err error) string {
	if err == nil {
		return out
	}
	// A NameError must carry the holder of the requested name.
	var name *NameError
	if errors.As(err, &name) && name.Holder.Name != name.Name {
		return "the error names the wrong holder"
	}
	return "error: " + err.Error()
}

func (l *Lessor) show(id ID) string {
	info, ok := l.Lookup(id)
	if !ok {
		return "no such lease"
	}
	return showInfo(info)
}

func showInfo(i Info) string {
	var b strings.Builder
	fmt.Fprintf(&b, "lease %d: ttl %s, token %s, stamp %d",
		i.ID, i.TTL.show(), i.Token.show(), i.Stamp)
	if i.Name != "" {
		fmt.Fprintf(&b, ", name %s", i.Name)
	}
	if i.Owner != "" {
		fmt.Fprintf(&b, ", owner %s", i.Owner)
	}
	if len(i.Labels) > 0 {
		fmt.Fprintf(&b, ", %v", i.Labels)
	}
	if i.LockDelay != 0 {
		fmt.Fprintf(&b, ", lock delay %s", i.LockDelay.show())
	}
	if i.KeepKeys {
		b.WriteString(", keeps keys")
	}
	if i.Secret != (Secret{}) {
		fmt.Fprintf(&b, ", secret %s", strings.TrimRight(string(i.Secret[:]), "\x00"))
	}
	if i.Remaining != 0 {
		fmt.Fprintf(&b, ", checkpointed with %s", i.Remaining.show())
	}
	if i.Delayed {
		b.WriteString(", delayed")
	}
	return b.String()
}

func (t Token) show() string {
	if g := t >> generationShift; g != 0 {
		return fmt.Sprintf("%d of generation %d", t&(1<<generationShift-1), g)
	}
	return strconv.FormatUint(uint64(t), 10)
}

func showKeys(keys []string) string {
	if len(keys) == 0 {
		return "no keys"
	}
	return "keys " + strings.Join(keys, " ")
}

// sameState compares the replicated parts of two members (S3).
func sameState(a, b *Lessor) error {
	if a.lastToken != b.lastToken || a.generation != b.generation {
		return fmt.Errorf("last token %d of generation %d, the other's %d of %d",
			a.lastToken, a.generation, b.lastToken, b.generation)
	}
	x, y := slices.Collect(a.View().All()), slices.Collect(b.View().All())
	if len(x) != len(y) || a.Len() != len(x) || b.Len() != len(y) || a.Attached() != b.Attached() {
		return fmt.Errorf("%d leases, %d keys; the other's %d, %d",
			len(x), a.Attached(), len(y), b.Attached())
	}
	for i := range x {
		if !equalInfo(x[i], y[i]) {
			return fmt.Errorf("%+v, the other's %+v", x[i], y[i])
		}
		if k := a.Keys(x[i].ID); !slices.Equal(k, b.Keys(x[i].ID)) {
			return fmt.Errorf("keys of lease %d: %v, the other's %v", x[i].ID, k, b.Keys(x[i].ID))
		}
	}
	return nil
}

// equalInfo compares two copies.
func equalInfo(a, b Info) bool {
	return a.ID == b.ID && a.TTL == b.TTL && a.Name == b.Name && a.Owner == b.Owner &&
		a.RequestID == b.RequestID && maps.Equal(a.Labels, b.Labels) && a.Token == b.Token &&
		a.Remaining == b.Remaining && a.Stamp == b.Stamp && a.Delayed == b.Delayed &&
		a.LockDelay == b.LockDelay && a.KeepKeys == b.KeepKeys && a.Secret == b.Secret
}
