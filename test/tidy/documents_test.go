package tidy

import (
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// documents reads all documents in the repository, keyed by path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files := os.DirFS(root(t))
	err := fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && skipDir(d.Name()):
			return fs.SkipDir
		case path.Ext(p) == ".md":
			text, err := fs.ReadFile(files, p)
			out[p] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// prose returns the text of a document without fenced blocks, and the unindented Go code in those
// blocks.
func prose(document string) (text string, code []string) {
	language, block := "", ""
	for line := range strings.Lines(document) {
		trimmed := strings.TrimSpace(line)
		switch mark, fence := strings.CutPrefix(trimmed, "```"); {
		case fence && language == "":
			language, block = mark+" ", ""
		case fence:
			if language == "go " {
				code = append(code, block)
			}
			language = ""
		case language != "":
			block += trimmed + "\n"
		default:
			text += line
		}
	}
	return text, code
}

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	document  = regexp.MustCompile(`[\w./*-]*\w\.md\b`)
	file      = regexp.MustCompile("`([a-z]+/[\\w./-]*\\w\\.(?:go|sh|txt|csv|svg|proto))`")
	test      = regexp.MustCompile(`\b(Test|Fuzz|Benchmark|Example)[A-Z]\w*\*?`)
	qualified = regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	target    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the URL fragments of the headings in a document.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	text, _ = prose(text)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, target.ReplaceAllString(m[1], "$1"))] = true
	}
	return out
}

// A repository contains everything that documents may refer to.
type repository struct {
	docs   map[string]string
	exists func(path string) bool
	tests  []string
	public map[string]map[string]string // exported names, keyed by package name
}

// dangling returns the references in the named document to things that do not exist: linked files
// and headings, documents, files and tests mentioned by name, and exported names in Go code.
func (r *repository) dangling(name string) (out []string) {
	text, code := prose(r.docs[name])
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		linked, anchor, _ := strings.Cut(m[1], "#")
		if linked = path.Join(path.Dir(name), linked); strings.HasPrefix(m[1], "#") {
			linked = name
		}
		doc, ok := r.docs[linked]
		if !ok && !r.exists(linked) || anchor != "" && !anchors(doc)[anchor] {
			out = append(out, m[1])
		}
	}
	out = append(out, r.danglingDocuments(name, text)...)
	for _, m := range file.FindAllStringSubmatch(r.docs[name], -1) {
		if !r.exists(m[1]) {
			out = append(out, m[1])
		}
	}
	for _, m := range test.FindAllString(r.docs[name], -1) {
		if within(name, "test") {
			break // these pages describe third-party suites
		}
		prefix, several := strings.CutSuffix(m, "*")
		if !slices.ContainsFunc(r.tests, func(t string) bool {
			return t == m || several && strings.HasPrefix(t, prefix)
		}) {
			out = append(out, m)
		}
	}
	for _, m := range qualified.FindAllStringSubmatch(strings.Join(code, ""), -1) {
		if names := r.public[m[1]]; names != nil && names[m[2]] == "" {
			out = append(out, m[0])
		}
	}
	return out
}

// danglingDocuments returns the documents that a text mentions but that are neither in the same
// directory as the named file, nor at the root, nor in docs.
func (r *repository) danglingDocuments(name, text string) (out []string) {
	for _, m := range document.FindAllString(text, -1) {
		here := func(p string) bool { _, ok := r.docs[p]; return ok }
		if !strings.Contains(m, "*") && !strings.HasPrefix(m, "//") && !here(path.Join(path.Dir(name), m)) &&
			!here(path.Clean(m)) && !here(path.Join("docs", m)) {
			out = append(out, m)
		}
	}
	return out
}

func newRepository(t *testing.T) *repository {
	r := &repository{docs: documents(t), public: map[string]map[string]string{}}
	r.exists = func(p string) bool {
		_, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(p)))
		return err == nil
	}
	for _, s := range load(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.isTest() && f.Recv == nil {
				r.tests = append(r.tests, f.Name.Name)
			}
		}
	}
	for dir, files := range public(t) {
		r.public[path.Base(dir)] = exported(files)
	}
	return r
}

func TestDocuments(t *testing.T) {
	r := newRepository(t)
	for _, name := range slices.Sorted(maps.Keys(r.docs)) {
		for i, line := range strings.Split(r.docs[name], "\n") {
			if utf8.RuneCountInString(line) > 120 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d: longer than 120 columns", name, i+1)
			}
		}
		for _, what := range r.dangling(name) {
			t.Errorf("%s refers to %s, which does not exist", name, what)
		}
	}
	for _, s := range load(t) {
		if s.dir() != "test/tidy" {
			for _, what := range r.danglingDocuments(s.path, string(s.text)) {
				t.Errorf("%s names %s, which does not exist", s.path, what)
			}
		}
	}
}

// TestCodeOfDocuments checks that the Go code in these documents comes from examples, which are
// tested.
func TestCodeOfDocuments(t *testing.T) {
	for document, examples := range map[string][]string{
		"docs/client.md":    {"examples/quickstart/main.go", "leaseholdtest/leaseholdtest_test.go"},
		"docs/migrating.md": {"examples/migrating/example_test.go"},
	} {
		var all string
		for _, example := range examples {
			program, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(example)))
			if err != nil {
				t.Fatal(err)
			}
			_, code := prose("```go\n" + string(program) + "```\n")
			all += code[0]
		}
		_, list := prose(documents(t)[document])
		if len(list) == 0 {
			t.Errorf("%s has no Go code", document)
		}
		for _, code := range list {
			if !strings.Contains(all, code) {
				t.Errorf("%s has code that %v lack:\n%s", document, examples, code)
			}
		}
	}
}

// label matches the name of an invariant or rule in docs/design.md, or of a fault in
// docs/simulator.md, such as "L4". labelDefined matches the place where such a page defines it.
var (
	label        = regexp.MustCompile(`\b([TLSWCQV][0-9]{1,2}[ab]?|[Rr]ule [0-9])\b`)
	labelDefined = regexp.MustCompile(
		`(?m)^(?:- \*\*([A-Z]\d+)\*\*|\| (T\d+[ab]?(?:, T\d+)*) \||(\d)\. \*\*)`)
)

// labels returns the labels that a document defines.
func labels(text string) (out []string) {
	text, _ = prose(text)
	for _, m := range labelDefined.FindAllStringSubmatch(text, -1) {
		switch {
		case m[3] != "":
			out = append(out, "rule "+m[3])
		default:
			out = append(out, strings.Split(m[1]+m[2], ", ")...)
		}
	}
	return out
}

// TestLabels checks that each label is defined on a single page, and that a test mentions each
// fault.
func TestLabels(t *testing.T) {
	docs := documents(t)
	faults := labels(docs["docs/simulator.md"])
	known := map[string]bool{}
	for _, name := range labels(docs["docs/design.md"]) {
		known[name] = true
	}
	for _, name := range faults {
		if slices.Contains(labels(docs["docs/design.md"]), name) {
			t.Errorf("docs/design.md and docs/simulator.md both define %s", name)
		}
		known[name] = true
	}
	check := func(at, text string) {
		for _, name := range label.FindAllString(text, -1) {
			if !known[strings.Replace(name, "Rule", "rule", 1)] {
				t.Errorf("%s: no document defines %s", at, name)
			}
		}
	}
	for name, document := range docs {
		text, _ := prose(document)
		check(name, text)
	}
	var tests strings.Builder
	for _, s := range load(t) {
		if s.dir() == "test/tidy" {
			continue
		}
		for _, g := range s.ast.Comments {
			check(s.path, g.Text())
		}
		if s.isTest() {
			tests.Write(s.text)
		}
	}
	for _, name := range faults {
		if !regexp.MustCompile(name + `\D`).MatchString(tests.String()) {
			t.Errorf("docs/simulator.md has %s, and no test names it", name)
		}
	}
}

// TestDangling checks that planted dangling references are found.
func TestDangling(t *testing.T) {
	r := &repository{
		docs: map[string]string{
			"README.md": "[a](docs/a.md#one-two), [gone](docs/gone.md), `a.md`, docs/*.md, TestT1*",
			"docs/a.md": "## One, `two`\n[top](../README.md), [here](#one-two), [none](#three)\n" +
				"[p](p.svg), [q](q.svg), [web](https://a.example/x.md), `lost/q.svg`\n" +
				"```\n[fenced](no.md)\n## Three\n```\nTestGone, TestHere\n" +
				"```go\nclient.New(client.Old)\n```\n",
		},
		exists: func(p string) bool { return p == "docs/p.svg" },
		tests:  []string{"TestHere", "TestT1Alone"},
		public: map[string]map[string]string{"client": {"New": "New"}},
	}
	for name, want := range map[string][]string{
		"README.md": {"docs/gone.md", "docs/gone.md"},
		"docs/a.md": {"#three", "q.svg", "lost/q.svg", "TestGone", "client.Old"},
	} {
		if got := r.dangling(name); !slices.Equal(got, want) {
			t.Errorf("%s: dangling are %q, want %q", name, got, want)
		}
	}
	got := labels("1. **Clocks.** See **L9**.\n- **L4** one\n| T17a | f |\n| T22, T23 | g |\nT5\n")
	if want := []string{"rule 1", "L4", "T17a", "T22", "T23"}; !slices.Equal(got, want) {
		t.Errorf("labels are %q, want %q", got, want)
	}
}
