package fsm

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// TestScenarios runs the scripts in testdata/scenarios, which contain commands with explanations
// and expected output. Run with -rewrite to update the expected output, and review the diff.
//
// A command of the log is written as its type followed by its fields: "put key=a lease=1".
// "as=alice" sets the caller, and "with=role" makes the caller a bound principal with that role.
// "session=1 number=2" numbers the command within a session, and "settled=1" sets its settled
// number.
//
// In a transaction, each condition and operation is one line. "if a" requires that the key a
// exists, and "if value a = x" compares a value. "then put key=a" adds an operation, and "else ..."
// adds one to the other branch. "then txn put key=a" adds an operation to the nested transaction
// that comes last.
//
// The output is the result and the events for watchers. After each command, the state is restored
// from a snapshot and must be equal.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &scenario{m: New(Config{})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			return s.run()
		})
	})
}

type scenario struct {
	t *testing.T
	d *datadriven.TestData
	m *Machine

	events uint64 // the last lease event that was reported
}

func (s *scenario) run() string {
	switch s.d.Cmd {
	case "new":
		s.m, s.events = New(Config{Lease: lease.Config{MaxKeys: int(s.number("max-keys", 0))}}), 0
		return "ok"
	case "lease":
		info, ok := s.m.lessor.Lookup(lease.ID(s.number("id", 0)))
		if !ok {
			return "none"
		}
		return showInfo(&info)
	case "members":
		var b strings.Builder
		for _, n := range s.m.View().Members {
			fmt.Fprintf(&b, "%+v\n", n)
		}
		return b.String()
	case "uses":
		return s.uses()
	case "version":
		v := s.m.Version()
		return fmt.Sprintf("version %d, held %v, fell %v", v.Number, v.Held, v.Fell)
	case "holds":
		return s.holds()
	case "alarms":
		return fmt.Sprint(s.m.View().Alarms)
	case "promote":
		s.m.lessor.Promote(lease.Instant(s.number("now", 0)))
		return "ok"
	}
	index := s.m.Index()
	r := apply(s.t, s.m, s.forClients(s.command()))
	if hash(s.t, restored(s.t, s.m)) != hash(s.t, s.m) {
		s.d.Fatalf(s.t, "restored from a snapshot it is another state")
	}
	return s.reported(index, r)
}

// forClients wraps a command in the session and the caller given by its arguments.
func (s *scenario) forClients(c Command) Command {
	who := access.Caller{Revision: s.m.meta.access.Revision()}
	s.d.MaybeScanArgs(s.t, "as", &who.User)
	if s.d.HasArg("with") {
		who.Bound = &access.Bound{Roles: make([]string, 1)}
		s.d.ScanArgs(s.t, "with", &who.Bound.Roles[0])
	}
	once := &Once{Session: Session{Nonce: 7}, Command: c}
	if s.d.HasArg("session") {
		s.d.ScanArgs(s.t, "session", &once.Session.ID)
		s.d.MaybeScanArgs(s.t, "nonce", &once.Session.Nonce)
		s.d.ScanArgs(s.t, "number", &once.Number)
		s.d.MaybeScanArgs(s.t, "settled", &once.Settled)
		c = once
	}
	if who.User == "" {
		return c
	}
	return &By{who, c}
}

// about lists the arguments that specify the caller and session. They are not fields of the
// command.
var about = []string{"as", "with", "session", "number", "settled"}

// holds lists the ranges held by leases and by orphans.
func (s *scenario) holds() string {
	var b strings.Builder
	for id, ranges := range s.m.holds.Holds.All() {
		fmt.Fprintf(&b, "lease %d holds %q\n", id, ranges)
	}
	for o := range s.m.holds.Holds.Orphans() {
		fmt.Fprintf(&b, "token %d of lease %d held %q\n", o.Lease.Token, o.Lease.ID, o.Ranges)
	}
	return cmp.Or(b.String(), "nothing is held")
}

// uses lists how much of the state each principal uses.
func (s *scenario) uses() string {
	var b strings.Builder
	all := slices.Collect(s.m.Uses())
	slices.SortFunc(all, func(a, b Use) int { return strings.Compare(a.Principal, b.Principal) })
	for _, u := range all {
		fmt.Fprintf(&b, "%s: %d leases, %d keys on leases, %d bytes\n",
			u.Principal, u.Leases, u.LeaseKeys, u.Bytes)
	}
	return cmp.Or(b.String(), "nobody has anything")
}

func (s *scenario) number(name string, otherwise int64) int64 {
	s.d.MaybeScanArgs(s.t, name, &otherwise)
	return otherwise
}

func (s *scenario) check(err error) {
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
}

// command parses a command and its input lines.
func (s *scenario) command() Command {
	id := lease.ID(s.number("id", 0))
	info, _ := s.m.lessor.Lookup(id)
	token := lease.Token(s.number("token", int64(info.Token)))
	switch s.d.Cmd {
	case "expire":
		return &Expire{Term: 1, Leases: []lease.Due{{ID: id, Token: token, Stamp: info.Stamp}}}
	case "checkpoint":
		return &Checkpoint{Term: uint64(s.number("term", 1)), Leases: []lease.Checkpoint{{
			ID: id, Token: token, Remaining: lease.TTL(s.number("remaining", 0)), Stamp: info.Stamp,
		}}}
	case "txn":
		c := &Txn{}
		for line := range strings.Lines(s.d.Input) {
			s.operation(c, strings.Fields(line))
		}
		return c
	}
	var words []string
	for _, a := range s.d.CmdArgs {
		if slices.Contains(about, a.Key) || a.Key == "nonce" && s.d.HasArg("session") {
			continue
		}
		words = append(words, a.String())
	}
	return s.read(s.d.Cmd, words).(Command)
}

// operation parses a line and adds it to a transaction.
func (s *scenario) operation(c *Txn, words []string) {
	branch := &c.Then
	switch words[0] {
	case "if":
		c.Compare = append(c.Compare, s.condition(words[1:]))
		return
	case "else":
		branch = &c.Else
	}
	if words[1] == "txn" {
		if n := len(*branch); n == 0 || (*branch)[n-1].Txn == nil {
			*branch = append(*branch, Op{Txn: &Txn{}})
		}
		inner := words[2:]
		if inner[0] != "if" {
			inner = append([]string{"then"}, inner...)
		}
		s.operation((*branch)[len(*branch)-1].Txn, inner)
		return
	}
	op := Op{Draw: words[1] == "draw"}
	if !op.Draw {
		v := reflect.ValueOf(s.read(words[1], words[2:]))
		for i := range reflect.TypeFor[Op]().NumField() {
			if f := reflect.ValueOf(&op).Elem().Field(i); f.Type() == v.Type() {
				f.Set(v)
			}
		}
	}
	*branch = append(*branch, op)
}

// condition parses a condition. A single word is a key that must exist, meaning that its version is
// above 0. Otherwise, the words are a target, a key, a relation and a value.
func (s *scenario) condition(words []string) Compare {
	if len(words) == 1 {
		return Compare{Key: words[0], Relation: Greater}
	}
	c := Compare{
		Target: map[string]Target{
			"version": TargetVersion, "create": TargetCreate, "mod": TargetMod, "value": TargetValue,
			"lease": TargetLease, "alive": TargetLeaseAlive, "token": TargetNameToken,
			"name": TargetLeaseName,
		}[words[0]],
		Relation: Relation(slices.Index([]string{"=", ">", "<", "!="}, words[2])),
	}
	c.Key, c.End, _ = strings.Cut(words[1], "-")
	if c.Target.bytes() {
		c.Value = []byte(words[3])
		return c
	}
	n, err := strconv.ParseInt(words[3], 10, 64)
	s.check(err)
	c.Number = n
	return c
}

// read parses a command or an operation from its name and its fields.
func (s *scenario) read(name string, words []string) any {
	all := []any{new(Range), new(Touch)}
	for _, c := range bare() {
		all = append(all, c)
	}
	for _, c := range all {
		v := reflect.ValueOf(c).Elem()
		if !strings.EqualFold(v.Type().Name(), name) {
			continue
		}
		for _, w := range words {
			field, text, _ := strings.Cut(w, "=")
			if !s.set(v, field, text) {
				s.d.Fatalf(s.t, "%s has no field %s", name, field)
			}
		}
		return c
	}
	s.d.Fatalf(s.t, "unknown command %s", name)
	return nil
}

// set sets a field of a struct or of a nested struct. It returns false if there is no such field.
func (s *scenario) set(v reflect.Value, name, text string) bool {
	for i := range v.NumField() {
		f := v.Field(i)
		if strings.EqualFold(v.Type().Field(i).Name, name) && f.Kind() != reflect.Struct {
			s.fill(f, text)
			return true
		}
		if f.Kind() == reflect.Struct && s.set(f, name, text) {
			return true
		}
	}
	return false
}

func (s *scenario) fill(f reflect.Value, text string) {
	switch p := f.Addr().Interface().(type) {
	case *lease.TTL:
		d, err := time.ParseDuration(text)
		s.check(err)
		*p = lease.TTL(d.Milliseconds())
	case *[]byte:
		*p = []byte(text)
	case *[]keyrange.Range:
		key, end, _ := strings.Cut(text, "-")
		*p = append(*p, keyrange.Range{Key: key, End: end})
	case *access.HolderKind:
		*p = access.HolderKind(slices.Index([]string{"default", "role", "user"}, text))
	case *[]access.LimitChange:
		what, most, _ := strings.Cut(text, ":")
		n, err := strconv.ParseInt(most, 10, 64)
		s.check(err)
		for r := range access.Resource(access.Resources) {
			if r.String() == what {
				*p = append(*p, access.LimitChange{What: r, Most: n})
			}
		}
	case *[]string:
		*p = strings.Split(text, ",")
	case *[]lease.Token:
		for t := range strings.SplitSeq(text, ",") {
			n, err := strconv.ParseUint(t, 10, 64)
			s.check(err)
			*p = append(*p, lease.Token(n))
		}
	case *lease.Secret:
		copy(p[:], text)
	default:
		switch {
		case f.Kind() == reflect.String:
			f.SetString(text)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.CanInt():
			n, err := strconv.ParseInt(text, 10, 64)
			s.check(err)
			f.SetInt(n)
		default:
			n, err := strconv.ParseUint(text, 10, 64)
			s.check(err)
			f.SetUint(n)
		}
	}
}

// reported describes a result, and the events for watchers since the given entry.
func (s *scenario) reported(index uint64, r Result) string {
	var b strings.Builder
	if r.Repeated {
		b.WriteString("again: ")
	}
	if r.Err != nil {
		fmt.Fprintf(&b, "refused: %v\n", r.Err)
	} else {
		fmt.Fprintf(&b, "%s\n", showValue(r.Value))
	}
	for _, c := range s.m.TakeChanges() {
		if len(c.Events) == 0 {
			fmt.Fprintf(&b, "revision %d: nothing\n", c.Revision)
		}
		for _, e := range c.Events {
			what := fmt.Sprintf("put %q %q on lease %d", e.KV.Key, e.KV.Value, e.KV.Lease)
			if e.Delete {
				why, id := WhyDeleted(&e)
				what = fmt.Sprintf("deleted %q, %s %d", e.KV.Key,
					[...]string{"by a client", "expired with", "revoked with"}[why], id)
			}
			fmt.Fprintf(&b, "revision %d: %s\n", c.Revision, what)
		}
	}
	for _, e := range after(s.t, s.m, s.events) {
		s.events = e.Seq
		fmt.Fprintf(&b, "event %s, token %d", show([]LeaseEvent{e})[0], e.Info.Token)
		if e.Before != 0 {
			fmt.Fprintf(&b, " after %d", e.Before)
		}
		b.WriteByte('\n')
	}
	for _, text := range silences(s.t, s.m, index) {
		fmt.Fprintf(&b, "silent: lease %s\n", text)
	}
	return b.String()
}

func showInfo(i *lease.Info) string {
	return fmt.Sprintf("lease %d of %q, name %q, token %d, ttl %v", i.ID, i.Owner, i.Name, i.Token,
		time.Duration(i.TTL)*time.Millisecond)
}

func showValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "done"
	case *lease.Info:
		return showInfo(v)
	case *Existing:
		return "existing " + showInfo(&v.Info)
	case *PutResult:
		if v.Prev != nil {
			return fmt.Sprintf("put, before %q on lease %d", v.Prev.Value, v.Prev.Lease)
		}
		return "put"
	case *DeleteResult:
		return fmt.Sprintf("deleted %d%s", v.Deleted, showPairs(v.Prev))
	case *RevokeResult:
		return fmt.Sprintf("revoked, with %d keys", v.Deleted)
	case *mvcc.RangeResult:
		return fmt.Sprintf("found %d%s", v.Count, showPairs(v.KVs))
	case Session:
		return fmt.Sprintf("session %d", v.ID)
	case *TxnResult:
		text := fmt.Sprintf("succeeded %v", v.Succeeded)
		for _, r := range v.Responses {
			text += "\n- " + strings.ReplaceAll(showValue(r), "\n", "\n  ")
		}
		return text
	default:
		return fmt.Sprintf("%v", v)
	}
}

func showPairs(pairs []*mvcc.KeyValue) string {
	text := ""
	for i, kv := range pairs {
		text += fmt.Sprintf("%s%s=%s", [...]string{": ", " "}[min(i, 1)], kv.Key, kv.Value)
	}
	return text
}
