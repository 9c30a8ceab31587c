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

// refusals lists the errors with which this package rejects commands, by name. If err is nil, the
// error is never sent to another member, and stay gives the reason.
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
	"fsm.ErrUnreadable":  {stay: "refused before it is sent"},
	"ErrMessage":         {stay: "about a message"},
	"ErrImpossible":      {stay: "the member stops"},
	"ErrDamaged":         {stay: "the member stops"},
	"ErrBadTransferee":   {stay: "the leader itself hands over"},
}

// TestForwardedRefusals checks that every error with which a leader rejects a forwarded command
// reaches the other member unchanged. It finds the errors in the source of this package.
func TestForwardedRefusals(t *testing.T) {
	for _, name := range namedErrors(t) {
		r, ok := refusals[name]
		switch {
		case !ok:
			t.Errorf("%s: does it go to other members? say so in refusals", name)
		case r.stay == "":
			if got := refusedAcross(t, r.err); !errors.Is(got, r.err) {
				t.Errorf("%s: arrives as %v", name, got)
			}
		}
	}
}

// refusedAcross rejects another member's command with err and returns the error that the client
// gets.
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

// namedErrors returns the names of the errors that this package declares or passes to refuse.
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

// errorNames returns the names of the errors declared in v.
func errorNames(v *ast.ValueSpec) (names []string) {
	for i, value := range v.Values {
		if c, ok := value.(*ast.CallExpr); ok && called(c) == "New" {
			names = append(names, v.Names[i].Name)
		}
	}
	return names
}

// refusedWith returns the name of another package's error in a call to refuse.
func refusedWith(c *ast.CallExpr) []string {
	if called(c) != "refuse" || len(c.Args) < 2 {
		return nil
	}
	if s, ok := c.Args[1].(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Err") {
		return []string{s.X.(*ast.Ident).Name + "." + s.Sel.Name}
	}
	return nil
}

// called returns the name of the called function.
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
