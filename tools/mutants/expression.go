package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// comparisons maps each comparison to the runtime function and the operator used by the mutant.
var comparisons = map[token.Token]struct{ function, becomes string }{
	token.LSS: {"Less", "with <="},
	token.LEQ: {"LessEqual", "with <"},
	token.GTR: {"Greater", "with >="},
	token.GEQ: {"GreaterEqual", "with >"},
}

// expression creates the mutants of one expression, but not of its parts.
func (c *changer) expression(e ast.Expr) {
	t := c.info.Types[e]
	if !t.IsValue() {
		return
	}
	if isBoolean(t.Type) {
		c.boolean(e, t.Value != nil)
	}
	if t.Value != nil {
		return
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		c.binary(e)
	case *ast.CallExpr:
		c.extreme(e)
	}
}

// boolean changes a boolean expression according to its mark.
func (c *changer) boolean(e ast.Expr, constant bool) {
	m := c.marks[e]
	if p, ok := e.(*ast.ParenExpr); ok {
		c.marks[p.X], m = m, spared
	}
	if constant && m != negated {
		return
	}
	switch {
	case m == branches:
		n := c.add(e, "is always true")
		c.add(e, "is always false")
		c.call(e, "Condition", n)
	case m == alwaysTrue:
		c.call(e, "True", c.add(e, "is always true"))
	case m == alwaysFalse:
		c.call(e, "False", c.add(e, "is always false"))
	case m == negated, m == 0 && isDecision(e):
		c.call(e, "Not", c.add(e, "is negated"))
	}
	switch e := e.(type) {
	case *ast.UnaryExpr:
		c.marks[e.X] = spared
	case *ast.BinaryExpr:
		if operand, ok := map[token.Token]mark{
			token.LAND: alwaysTrue, token.LOR: alwaysFalse,
		}[e.Op]; ok {
			c.marks[e.X], c.marks[e.Y] = operand, operand
		}
	}
}

// isDecision reports whether this expression decides a boolean value.
func isDecision(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return true
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	}
	return false
}

// binary changes comparisons and sums.
func (c *changer) binary(e *ast.BinaryExpr) {
	x, y := c.info.TypeOf(e.X), c.info.TypeOf(e.Y)
	if to, ok := comparisons[e.Op]; ok && isBasic(x, types.IsOrdered) && types.Identical(x, y) {
		c.call(e, to.function, c.add(e, to.becomes))
		c.inserts = append(c.inserts, insertion{
			offset: c.offset(e.OpPos), cut: len(e.Op.String()), text: ",",
		})
	}
	isSum := e.Op == token.ADD || e.Op == token.SUB
	if isSum && c.marks[e] != spared && isBasic(c.info.TypeOf(e), types.IsInteger) {
		c.call(e, "OneMore", c.add(e, "is one more"))
		for _, part := range []ast.Expr{e.X, e.Y} {
			// Adding one to a part has the same effect as adding one to the sum.
			c.marks[ast.Unparen(part)] = spared
		}
	}
}

// extreme replaces min or max with one of its arguments.
func (c *changer) extreme(e *ast.CallExpr) {
	id, ok := e.Fun.(*ast.Ident)
	if !ok || len(e.Args) != 2 {
		return
	}
	function := map[types.Object]string{
		types.Universe.Lookup("min"): "Min", types.Universe.Lookup("max"): "Max",
	}[c.info.Uses[id]]
	if function == "" || !isBasic(c.info.TypeOf(e), types.IsOrdered) {
		return
	}
	n := c.add(e, "is its first argument")
	c.add(e, "is its second argument")
	c.inserts = append(c.inserts, insertion{
		offset: c.offset(e.Pos()), cut: c.offset(e.Lparen) + 1 - c.offset(e.Pos()),
		order: len(c.inserts) + 1,
		text:  fmt.Sprintf("%s.%s(%d, ", runtimeName, function, n),
	})
}

func isBoolean(t types.Type) bool { return isBasic(t, types.IsBoolean) }

// isBasic reports whether the underlying type of t is a basic type of the given kind.
func isBasic(t types.Type, kind types.BasicInfo) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&kind != 0
}
