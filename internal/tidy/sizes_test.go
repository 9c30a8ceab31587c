package tidy

import (
	"bytes"
	"go/ast"
	"go/format"
	"strings"
	"unicode/utf8"
)

// The sizes that fit one screen and one head.
const (
	maxFuncLines  = 60
	maxFileLines  = 600 // tests may be longer: a table is not split to fit
	maxParams     = 4
	maxLineRunes  = 100
	maxStructSize = 20
)

// checkFuncs keeps functions to one screen and four parameters. A context and
// the receiver do not count as parameters. Tests may be long: a table is.
func checkFuncs(s *source) []finding {
	if s.isTest() {
		return nil
	}
	var out []finding
	for _, d := range s.ast.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := s.lines(f); n > maxFuncLines {
			out = append(out, s.report("function size", f.Pos(), funcName(f),
				"%s has %d lines, more than %d", funcName(f), n, maxFuncLines))
		}
		if n := params(f.Type); n > maxParams {
			out = append(out, s.report("parameters", f.Pos(), funcName(f),
				"%s has %d parameters, more than %d: take a struct", funcName(f), n, maxParams))
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		i, ok := n.(*ast.InterfaceType)
		if !ok {
			return true
		}
		for _, m := range i.Methods.List {
			f, ok := m.Type.(*ast.FuncType)
			if !ok || params(f) <= maxParams {
				continue
			}
			out = append(out, s.report("parameters", m.Pos(), m.Names[0].Name,
				"%s has %d parameters, more than %d: take a struct",
				m.Names[0].Name, params(f), maxParams))
		}
		return true
	})
	return out
}

// params counts parameters, without contexts.
func params(f *ast.FuncType) int {
	n := 0
	for _, field := range f.Params.List {
		if sel, ok := field.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" {
			continue
		}
		n += max(1, len(field.Names))
	}
	return n
}

// checkFile keeps files short, lines short, and the form gofmt's.
func checkFile(s *source) []finding {
	var out []finding
	if n := bytes.Count(s.text, []byte("\n")); n > maxFileLines && !s.isTest() {
		out = append(out, finding{
			"file size", s.path, n, s.path,
			"the file is longer than 600 lines: split it by subject",
		})
	}
	line := 0
	for text := range strings.Lines(string(s.text)) {
		line++
		text = strings.TrimRight(text, "\r\n")
		if utf8.RuneCountInString(text) <= maxLineRunes || s.isTest() || strings.HasPrefix(text, "//go:") {
			continue
		}
		out = append(out, finding{
			"line length", s.path, line, s.path,
			"the line is longer than 100 columns",
		})
	}
	formatted, err := format.Source(s.text)
	if err != nil || !bytes.Equal(formatted, s.text) {
		out = append(out, finding{"gofmt", s.path, 1, s.path, "not formatted: run gofumpt -w"})
	}
	return out
}

// checkStructs keeps structs to what one can remember.
func checkStructs(s *source) []finding {
	var out []finding
	ast.Inspect(s.ast, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		st, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		fields := 0
		for _, f := range st.Fields.List {
			fields += max(1, len(f.Names))
		}
		if fields > maxStructSize {
			out = append(out, s.report("struct size", spec.Pos(), spec.Name.Name,
				"%s has %d fields, more than %d", spec.Name.Name, fields, maxStructSize))
		}
		return true
	})
	return out
}

// funcName is the name of a function, with its receiver's type.
func funcName(f *ast.FuncDecl) string {
	if name := receiver(f); name != "" {
		return name + "." + f.Name.Name
	}
	return f.Name.Name
}

// receiver is the name of the receiver's type, "" for a plain function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
