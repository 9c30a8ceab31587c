package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// These constants are the path of the package that mutated code calls, and the name under which it
// imports the package.
const (
	runtime     = "leasehold.dev/internal/mutant"
	runtimeName = "mutant__"
)

// A Mutant is a single change in one place.
type Mutant struct {
	// Name identifies the change and is stable as long as the code is. It consists of the package,
	// function, source text and change, plus #2 for a second identical one.
	Name string
	Pos  token.Position
}

// Dir returns the directory of the mutant's package.
func (m Mutant) Dir() string {
	dir, _, _ := strings.Cut(m.Name, ": ")
	return dir
}

// An insertion replaces the next cut bytes of a file with text.
type insertion struct {
	offset, cut int
	// order sorts the insertions at the same offset. It is negative where an expression ends: ends
	// come first, and the innermost expression's end before all others.
	order int
	text  string
}

// A changer creates the mutants of one file. It works from the outside in and wraps code in calls
// to the runtime, so that mutants can be nested.
type changer struct {
	dir    string
	fset   *token.FileSet
	info   *types.Info
	source []byte
	// first is the number of the file's first mutant.
	first int
	// names counts the mutants of the package by name.
	names map[string]int

	function string // the declared function being changed
	// marks holds the treatment of inner boolean expressions.
	marks   map[ast.Expr]mark
	mutants []Mutant
	inserts []insertion
}

// A mark is the treatment of a boolean expression. With the zero mark, the expression itself
// decides.
type mark int

const (
	branches    mark = iota + 1 // condition of an if: make it always true and always false
	alwaysTrue                  // operand of &&: make it always true
	alwaysFalse                 // operand of ||, or loop condition: make it always false
	negated                     // a result: negate it
	spared                      // no change, because the surrounding code has an equivalent one
)

// change returns the file with all its mutants, or nil if it has none.
func (c *changer) change(f *ast.File) []byte {
	c.marks = make(map[ast.Expr]mark)
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			c.function = functionName(d)
			c.inside(d.Body, c.info.Defs[d.Name].Type().(*types.Signature))
		}
	}
	if len(c.mutants) == 0 {
		return nil
	}
	c.inserts = append(c.inserts, insertion{
		offset: c.offset(f.Name.End()),
		text:   fmt.Sprintf("; import %s %q", runtimeName, runtime),
	})
	return c.text()
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*") + "." + d.Name.Name
}

func (c *changer) offset(p token.Pos) int { return c.fset.Position(p).Offset }

// sourceOf returns the source text of a node.
func (c *changer) sourceOf(n ast.Node) string {
	return string(c.source[c.offset(n.Pos()):c.offset(n.End())])
}

// add adds a mutant and returns its number.
func (c *changer) add(n ast.Node, becomes string) int {
	const most = 80
	text := []rune(strings.Join(strings.Fields(c.sourceOf(n)), " "))
	if len(text) > most {
		text = append(text[:most], '…')
	}
	name := fmt.Sprintf("%s: %s: `%s` %s", c.dir, c.function, string(text), becomes)
	c.names[name]++
	if k := c.names[name]; k > 1 {
		name = fmt.Sprintf("%s #%d", name, k)
	}
	c.mutants = append(c.mutants, Mutant{Name: name, Pos: c.fset.Position(n.Pos())})
	return c.first + len(c.mutants) - 1
}

// around puts text before and after a node.
func (c *changer) around(n ast.Node, before, after string) {
	order := len(c.inserts) + 1
	c.inserts = append(c.inserts,
		insertion{offset: c.offset(n.Pos()), order: order, text: before},
		insertion{offset: c.offset(n.End()), order: -order, text: after})
}

// call wraps a node in a call of one of the runtime's functions.
func (c *changer) call(n ast.Node, function string, number int) {
	c.around(n, fmt.Sprintf("%s.%s(%d, ", runtimeName, function, number), ")")
}

// text returns the file with all insertions.
func (c *changer) text() []byte {
	slices.SortFunc(c.inserts, func(a, b insertion) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.order, b.order))
	})
	var out []byte
	at := 0
	for _, in := range c.inserts {
		out = append(out, c.source[at:in.offset]...)
		out = append(out, in.text...)
		at = in.offset + in.cut
	}
	return append(out, c.source[at:]...)
}

// inside mutates the body of a function with the given signature.
func (c *changer) inside(body *ast.BlockStmt, of *types.Signature) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			c.inside(n.Body, c.info.TypeOf(n).(*types.Signature))
			return false
		case *ast.IfStmt:
			if isAssertion(n) {
				return false
			}
			c.marks[n.Cond] = branches
		case *ast.ForStmt:
			if n.Cond != nil {
				c.marks[n.Cond] = alwaysFalse
			}
		case *ast.SwitchStmt:
			c.cases(n)
		case *ast.BlockStmt:
			c.statements(n.List)
		case *ast.CaseClause:
			c.statements(n.Body)
		case *ast.CommClause:
			c.statements(n.Body)
		case *ast.ReturnStmt:
			c.results(n, of)
		case ast.Expr:
			c.expression(n)
		}
		return true
	})
}

// isAssertion reports whether an if statement only panics. Removing an assertion breaks nothing.
func isAssertion(n *ast.IfStmt) bool {
	return len(n.Body.List) == 1 && n.Else == nil && isPanic(n.Body.List[0])
}

func isPanic(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := e.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

// cases marks the conditions of a switch without a tag.
func (c *changer) cases(n *ast.SwitchStmt) {
	if n.Tag != nil {
		return
	}
	for _, s := range n.Body.List {
		for _, e := range s.(*ast.CaseClause).List {
			c.marks[e] = branches
		}
	}
}

// results mutates what a function returns by dropping an error or negating a boolean.
func (c *changer) results(n *ast.ReturnStmt, of *types.Signature) {
	if len(n.Results) != of.Results().Len() {
		return // the results come from another function call or are named
	}
	for i, e := range n.Results {
		t := of.Results().At(i).Type()
		switch {
		case types.Identical(t, types.Typ[types.Bool]):
			c.marks[e] = negated
		case types.Identical(t, types.Universe.Lookup("error").Type()) && !c.info.Types[e].IsNil():
			c.call(e, "NoError", c.add(e, "is no error"))
		}
	}
}
