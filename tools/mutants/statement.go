package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// statements creates mutants that omit a statement of a list or swap two adjacent statements.
func (c *changer) statements(list []ast.Stmt) {
	swapped := false // whether the previous statement was swapped with this one
	for i, s := range list {
		if !c.canGo(s) {
			swapped = false
			continue
		}
		swapped = !swapped && c.swaps(list[i:])
		if swapped {
			c.swap(s, list[i+1])
		}
		c.around(s, fmt.Sprintf("if %s.Keep(%d) { ", runtimeName, c.add(s, "is left out")), " }")
	}
}

// canGo reports whether the code compiles without a statement and can then behave differently.
func (c *changer) canGo(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		return !isPanic(s) && !c.isLog(s.X)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && !isBlank(s)
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	case *ast.ReturnStmt:
		return len(s.Results) == 0
	case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		return true
	}
	return false
}

// isBlank reports whether an assignment has only the blank identifier on its left-hand side.
func isBlank(s *ast.AssignStmt) bool {
	id, ok := s.Lhs[0].(*ast.Ident)
	return ok && len(s.Lhs) == 1 && id.Name == "_"
}

// isLog reports whether a call only logs or checks an invariant.
func (c *changer) isLog(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	t := c.info.TypeOf(f.X)
	return t != nil && types.TypeString(t, nil) == "*log/slog.Logger" ||
		strings.Contains(strings.ToLower(f.Sel.Name), "invariant")
}

// swaps reports whether to swap the first two statements of a list. Each statement is swapped with
// only one neighbor, preferably a call.
func (c *changer) swaps(list []ast.Stmt) bool {
	if len(list) < 2 || !c.canSwap(list[0], list[1]) {
		return false
	}
	_, isCall := list[0].(*ast.ExprStmt)
	return isCall || len(list) < 3 || !c.canSwap(list[1], list[2])
}

// canSwap reports whether the order of two one-line statements can matter: one must be a call, and
// the other a call or an assignment.
func (c *changer) canSwap(a, b ast.Stmt) bool {
	if !c.canGo(b) || strings.Contains(c.sourceOf(a)+c.sourceOf(b), "\n") {
		return false
	}
	calls := 0
	for _, s := range []ast.Stmt{a, b} {
		switch s.(type) {
		case *ast.ExprStmt:
			calls++
		case *ast.AssignStmt, *ast.IncDecStmt:
		default:
			return false
		}
	}
	return calls > 0
}

// swap moves b in front of a.
func (c *changer) swap(a, b ast.Stmt) {
	n := c.add(a, fmt.Sprintf("comes after `%s`", c.sourceOf(b)))
	order := len(c.inserts) + 1
	c.inserts = append(c.inserts,
		insertion{
			offset: c.offset(a.Pos()), order: order,
			text: fmt.Sprintf("if %s.Keep(%d) { ", runtimeName, n),
		},
		insertion{
			offset: c.offset(b.End()), order: -order,
			text: fmt.Sprintf(" } else { %s; %s }", c.sourceOf(b), c.sourceOf(a)),
		})
}
