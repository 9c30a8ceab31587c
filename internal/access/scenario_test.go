package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/internal/keyrange"
)

// TestScenarios runs the scenarios in testdata, which change users and roles and then check access
// decisions. To update the expected output, run the test with -rewrite and review the diff.
//
// Each change is a line such as "add-user name=bob"; see script.changes for all of them. The key
// range "a" is a single key, "a-b" starts at a and ends before b, and "a-" contains all keys from a
// on. "ask as=bob" checks each line below it for that user. "with=reader,writer" makes the caller a
// principal with these roles that is not a user. "since=3" sets the revision at which the caller
// logged in; the default is the latest.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			switch d.Cmd {
			case "ask":
				return s.questions()
			case "show":
				return s.show()
			}
			return s.change()
		})
	})
}

type script struct {
	t     *testing.T
	d     *datadriven.TestData
	state *State
}

// arg returns the named argument of the line, or "".
func (s *script) arg(name string) (text string) {
	s.d.MaybeScanArgs(s.t, name, &text)
	return text
}

// keys parses a range.
func keys(text string) keyrange.Range {
	key, end, isRange := strings.Cut(strings.ReplaceAll(text, `\x00`, "\x00"), "-")
	if isRange && end == "" {
		end = keyrange.NoEnd
	}
	return keyrange.Range{Key: key, End: end}
}

// kinds maps names to permission kinds.
func kinds() map[string]Kind {
	all := make(map[string]Kind)
	for _, k := range []Kind{Read, Write, ReadWrite, See, Hold, Manage} {
		all[k.String()] = k
	}
	return all
}

// change applies the change given on a line.
func (s *script) change() string {
	before := s.state
	do, ok := s.changes()[s.d.Cmd]
	if !ok {
		s.d.Fatalf(s.t, "unknown command %s", s.d.Cmd)
	}
	after, err := do()
	s.state = after
	switch {
	case err != nil:
		return strings.TrimPrefix(err.Error(), "access: ") + "\n"
	case after == before:
		return "no change\n"
	}
	return fmt.Sprintf("revision %d\n", after.Revision())
}

func (s *script) changes() map[string]func() (*State, error) {
	name, role, hash := s.arg("name"), s.arg("role"), []byte(s.arg("hash"))
	of := keys(s.arg("of"))
	return map[string]func() (*State, error){
		"enable":       s.state.Enable,
		"disable":      func() (*State, error) { return s.state.Disable(), nil },
		"add-user":     func() (*State, error) { return s.state.AddUser(name, hash, len(hash) == 0) },
		"delete-user":  func() (*State, error) { return s.state.DeleteUser(name) },
		"set-password": func() (*State, error) { return s.state.SetPassword(name, hash) },
		"give-role":    func() (*State, error) { return s.state.GrantRole(name, role) },
		"take-role":    func() (*State, error) { return s.state.RevokeRole(name, role) },
		"add-role":     func() (*State, error) { return s.state.AddRole(name) },
		"delete-role":  func() (*State, error) { return s.state.DeleteRole(name) },
		"permit": func() (*State, error) {
			return s.state.Grant(role, Permission{kinds()[s.arg("to")], of.Key, of.End})
		},
		"forbid":       func() (*State, error) { return s.state.Revoke(role, of) },
		"forbid-names": func() (*State, error) { return s.state.RevokeNames(role, of) },
		"limit":        s.limit,
	}
}

// limit sets limits. Each input line contains a resource and a number.
func (s *script) limit() (*State, error) {
	of := Holder{}
	for kind, arg := range []string{"", "role", "user"} {
		if arg != "" && s.d.HasArg(arg) {
			of = Holder{HolderKind(kind), s.arg(arg)}
		}
	}
	var list []LimitChange
	for line := range strings.Lines(s.d.Input) {
		var what string
		var most int64
		if _, err := fmt.Sscan(line, &what, &most); err != nil {
			s.d.Fatalf(s.t, "%s: %v", line, err)
		}
		list = append(list, LimitChange{resource(what), most})
	}
	return s.state.SetLimits(of, list)
}

// resource returns the resource with the given name, or an unknown one.
func resource(name string) Resource {
	for r := range Resource(Resources) {
		if r.String() == name {
			return r
		}
	}
	return Resource(Resources)
}

// questions checks the request on each line for the given caller.
func (s *script) questions() string {
	who := Caller{User: s.arg("as")}
	for _, a := range s.d.CmdArgs {
		if a.Key == "with" {
			who.Bound = &Bound{a.Vals}
		}
	}
	if who.User != "" || who.Bound != nil {
		who.Revision = s.state.Revision()
	}
	s.d.MaybeScanArgs(s.t, "since", &who.Revision)
	var b strings.Builder
	for line := range strings.Lines(s.d.Input) {
		line = strings.TrimSpace(line)
		fmt.Fprintf(&b, "%s: %s\n", line, s.answer(who, strings.Fields(line)))
	}
	return b.String()
}

// answer reports whether a caller may perform the request on a line and, if not, why.
func (s *script) answer(who Caller, words []string) string {
	args := make(map[string]string)
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	of := Lease{Name: args["name"], Principal: args["of"]}
	switch words[0] {
	case "read", "write":
		return yes(s.state.Check(who, kinds()[words[0]], keys(words[1])))
	case "anything":
		return yes(s.state.CheckKnown(who))
	case "administrate":
		return yes(s.state.CheckRoot(who))
	case "relay":
		return yes(s.state.CheckRelay(who))
	case "see", "hold": // a lease by ID
		return yes(s.state.CheckLease(who, kinds()[words[0]], of))
	case "see-named", "hold-named": // a lease by name
		what, _, _ := strings.Cut(words[0], "-")
		return yes(s.state.CheckNamed(who, kinds()[what], of))
	case "grant":
		return yes(s.state.CheckGrant(who, of))
	case "keep": // what the caller already has
		return fmt.Sprint(s.state.MayHold(who.User, of.Name))
	case "role":
		return fmt.Sprint(s.state.HasRole(who, words[1]))
	case "limit":
		return fmt.Sprint(s.state.Limit(who, resource(words[1])))
	}
	s.d.Fatalf(s.t, "unknown question %s", words[0])
	return ""
}

func yes(err error) string {
	if err != nil {
		return strings.TrimPrefix(err.Error(), "access: ")
	}
	return "yes"
}

// show lists users, roles and limits.
func (s *script) show() string {
	var b strings.Builder
	for _, name := range s.state.Users() {
		u, _ := s.state.User(name)
		fmt.Fprintf(&b, "user %s, %s, roles %q\n", name,
			cmp.Or(string(u.Hash), "no password"), u.Roles)
	}
	for _, name := range s.state.Roles() {
		r, _ := s.state.Role(name)
		fmt.Fprintf(&b, "role %s\n", name)
		for _, p := range r.Permissions {
			fmt.Fprintf(&b, "- %v %q %q\n", p.Kind, p.Key, p.End)
		}
	}
	for _, of := range s.state.LimitHolders() {
		l := s.state.Limits(of)
		kind := [...]string{"default", "role", "user"}[of.Kind]
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("limits of %s %s", kind, of.Name)))
		for _, c := range l.Changes() {
			fmt.Fprintf(&b, "- %v %d\n", c.What, c.Most)
		}
	}
	if s.state.Len() != len(s.state.Users())+len(s.state.Roles()) {
		s.t.Errorf("%d users and roles", s.state.Len())
	}
	if again := remade(s.state); !slices.Equal(again.Users(), s.state.Users()) {
		s.t.Errorf("rebuilt, it has the users %q", again.Users())
	}
	return cmp.Or(b.String(), "empty\n")
}
