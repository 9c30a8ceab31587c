package tidy

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// unwanted are words that no comment has.
var unwanted = []struct {
	rule   string
	words  *regexp.Regexp
	advice string
}{
	// Work that is not done belongs to the list of issues, where it is seen.
	{
		"unfinished", regexp.MustCompile(`\b(?:TO` + `DO|FIX` + `ME|XX` + `X)\b`),
		"do it, or open an issue",
	},
	// Clauses whose noun the reader has to guess, and words for people where processes are meant.
	{
		"plain English", regexp.MustCompile(`\b(?:[Tt]hose|[Nn]obody|[Oo]ne|[Hh]e) who\b|` +
			`\b[Ww]hoever\b|\b(?:he|him|his|himself)\b|(?:^//|[.:]) Who (?:is|was|has|had|may|` +
			`can|does|asks|waits|holds|knows|gives|follows|watches|reads|writes|loses|looks)\b`),
		"name the client, member or lease that is meant",
	},
}

// checkWords finds unwanted words in comments.
func checkWords(s *source) []finding {
	var out []finding
	for _, g := range s.ast.Comments {
		for _, c := range g.List {
			for _, u := range unwanted {
				if w := u.words.FindString(c.Text); w != "" {
					out = append(out, s.report(u.rule, c.Pos(), "", "%q in a comment: %s", w, u.advice))
				}
			}
		}
	}
	return out
}

// checkPackageComment asks for a package comment in every package. A package
// of nothing but tests may carry it in one of them.
func checkPackageComment(files []*source) []finding {
	onlyTests := true
	for _, s := range files {
		onlyTests = onlyTests && s.isTest()
	}
	for _, s := range files {
		if s.ast.Doc != nil && (onlyTests || !s.isTest()) {
			return nil
		}
	}
	s := files[0]
	return []finding{{
		"package comment", s.path, s.line(s.ast.Package), s.dir(),
		"package " + s.ast.Name.Name + " has no package comment",
	}}
}

// checkDocs asks for a comment on every exported name. A group of constants,
// variables or types may share one; the methods of unexported types need none.
func checkDocs(s *source) []finding {
	if s.isTest() {
		return nil
	}
	var out []finding
	miss := func(pos token.Pos, name string) {
		out = append(out, s.report("documented names", pos, name,
			"%s is exported and has no comment", name))
	}
	for _, d := range s.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			r := receiver(d)
			hidden := r != "" && !ast.IsExported(r)
			if d.Name.IsExported() && !hidden && d.Doc == nil {
				miss(d.Pos(), funcName(d))
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if name := undocumented(d, spec); name != nil {
					miss(name.Pos(), name.Name)
				}
			}
		}
	}
	return out
}

// undocumented is the first exported name of spec if nothing documents it.
func undocumented(d *ast.GenDecl, spec ast.Spec) *ast.Ident {
	var names []*ast.Ident
	var doc, comment *ast.CommentGroup
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		names, doc, comment = []*ast.Ident{spec.Name}, spec.Doc, spec.Comment
	case *ast.ValueSpec:
		names, doc, comment = spec.Names, spec.Doc, spec.Comment
	}
	if d.Doc != nil || doc != nil || comment != nil {
		return nil
	}
	for _, n := range names {
		if n.IsExported() {
			return n
		}
	}
	return nil
}

// checkSleep finds tests that wait by sleeping. Inside a bubble of
// testing/synctest time is not real, and a sleep costs nothing; elsewhere a
// test waits for what it waits for.
func checkSleep(s *source) []finding {
	if !s.isTest() {
		return nil
	}
	var out []finding
	for _, d := range s.ast.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch selector(call.Fun) {
			case "synctest.Test", "inprocess.Bubble", "virtual.Test":
				return false
			case "time.Sleep":
				out = append(out, s.report("sleep", call.Pos(), funcName(f),
					"%s sleeps in real time: use testing/synctest, or wait for the event",
					funcName(f)))
			}
			return true
		})
	}
	return out
}

// selector spells an expression of the form package.Name, or "".
func selector(e ast.Expr) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + sel.Sel.Name
}

// subject is the form of a commit's first line: the package, what changes in
// lower-case words, no full stop.
var subject = regexp.MustCompile(`^[a-z0-9/.,{} _-]+: .+[^.]$|^(README|CHANGELOG|CONTRIBUTING): .+[^.]$`)

// checkSubject says what is wrong with the first line of a commit, or "".
func checkSubject(line string) string {
	if subject.MatchString(line) || strings.HasPrefix(line, "Merge ") {
		return ""
	}
	return "write a subject as \"package: what changes\", without a full stop"
}
