package replica

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
)

// refusals are the errors of this package, and those of others with which it refuses commands, by
// name. Those that have none here never go from one member to another, for the reason given.
var refusals = map[string]struct {
	err  error
	stay string
}{
	"ErrNoLeader":        {err: ErrNoLeader},
	"ErrLeaderChanged":   {err: ErrLeaderChanged},
	"ErrOverloaded":      {err: ErrOverloaded},
	"ErrInternal":        {err: ErrInternal},
	"ErrTooLarge":        {err: ErrTooLarge},
	"ErrVersion":         {err: ErrVersion},
	"ErrUnhealthy":       {err: ErrUnhealthy},
	"ErrTooManyLearners": {err: ErrTooManyLearners},
	"ErrLearnerNotReady": {err: ErrLearnerNotReady},
	"errWaiting":         {err: errWaiting},
	"fsm.ErrUnreadable":  {stay: "it is refused before it is sent"},
	"ErrMessage":         {stay: "it is about a message"},
	"ErrImpossible":      {stay: "the member stops"},
	"ErrDamaged":         {stay: "the member stops"},
	"ErrBadTransferee":   {stay: "leadership is handed over by the leader itself"},
}

// Goal: a command that a member forwards and the leader refuses comes back as what it is. Method:
// every error that the source of this package names is refused to another member, whose proposal
// must have it, by way of its encoding.
func TestRefusalsComeBack(t *testing.T) {
	for _, name := range namedErrors(t) {
		r, ok := refusals[name]
		switch {
		case !ok:
			t.Errorf("%s: does it go to other members? say so in refusals", name)
		case r.stay == "":
			if got := refusedAcross(t, r.err); !errors.Is(got, r.err) {
				t.Errorf("%s: comes back as %v", name, got)
			}
		}
	}
}

// refusedAcross refuses a command of another member with an error, and returns what that member
// tells its client.
func refusedAcross(t *testing.T, err error) error {
	t.Helper()
	l := lead(t)
	l.r.lead.refuse(&Proposal{Command: &fsm.Put{}, origin: fsm.Origin{Member: 2, Seq: 7}}, err)
	out := l.r.Take()
	if len(out.Send) != 1 || out.Send[0].Reply == nil {
		t.Fatalf("%v: sent %+v", err, out.Send)
	}
	m, failed := DecodeMessage(self, 2, out.Send[0].AppendTo(nil))
	if failed != nil {
		t.Fatal(failed)
	}
	p := &Proposal{Command: &fsm.Put{}}
	f := start(t, 2)
	f.r.term, f.r.leader, f.r.relay.commands.term = m.Reply.Term, self, m.Reply.Term
	f.r.relay.commands.sent = []sent{{seq: 7, term: m.Reply.Term, proposal: p}}
	f.r.stepReply(self, m.Reply)
	return p.Err
}

// namedErrors are the errors that this package declares, and those of others in its calls of
// refuse.
func namedErrors(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				names = append(names, errorNames(n)...)
			case *ast.CallExpr:
				names = append(names, refusedWith(n)...)
			}
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// errorNames are the names of errors that are made there.
func errorNames(v *ast.ValueSpec) (names []string) {
	for i, value := range v.Values {
		if c, ok := value.(*ast.CallExpr); ok && called(c) == "New" {
			names = append(names, v.Names[i].Name)
		}
	}
	return names
}

// refusedWith names the error of another package that a call of refuse has.
func refusedWith(c *ast.CallExpr) []string {
	if called(c) != "refuse" || len(c.Args) < 2 {
		return nil
	}
	if s, ok := c.Args[1].(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Err") {
		return []string{s.X.(*ast.Ident).Name + "." + s.Sel.Name}
	}
	return nil
}

// called is the name of what a call calls.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	default:
		return ""
	}
}
