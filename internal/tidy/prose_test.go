package tidy

import (
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

// maxDocRunes is the longest line of a document.
const maxDocRunes = 120

// documents reads all documents of the repository, by their paths from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	top, out := root(t), map[string]string{}
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != top && skipDir(d.Name()) {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(p) != ".md" {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		out[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("no documents found")
	}
	return out
}

// prose returns the lines of a document, and empty ones instead of those in fences.
func prose(text string) []string {
	lines, fenced := strings.Split(text, "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return lines
}

// longLines returns the numbers of the lines that are too long, of code too. Rows of tables
// cannot be broken.
func longLines(text string) (long []int) {
	for i, line := range strings.Split(text, "\n") {
		if utf8.RuneCountInString(line) > maxDocRunes && !strings.HasPrefix(line, "|") {
			long = append(long, i+1)
		}
	}
	return long
}

var (
	heading  = regexp.MustCompile(`^#+ +(.*)$`)
	mdLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdName   = regexp.MustCompile(`[\w./*-]*\w\.md\b`)
	fileName = regexp.MustCompile("`([a-z]+/[\\w./-]*\\w\\.(?:go|sh|txt|csv|svg|proto))`")
	mdTarget = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	shouted  = regexp.MustCompile(`\b[A-Z]{5,} [0-9](?:\.[0-9])?\b`)
	label    = regexp.MustCompile(`\b([TLSWCQV][0-9]{1,2}[ab]?|[Rr]ule [0-9])\b`)
	defined  = regexp.MustCompile(
		`^(?:- \*\*([A-Z]\d+)\*\*|\| ([A-Z]\d+[ab]?(?:, [A-Z]\d+)*) \||(\d)\. \*\*)`)
)

// anchors are the fragments by which links may name the headings of a document.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, line := range prose(text) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		plain := mdTarget.ReplaceAllString(m[1], "$1")
		out[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, plain)] = true
	}
	return out
}

// danglingLinks returns the links of the document at name that lead nowhere. A document is there
// if docs has it, another file if exists says so.
func danglingLinks(name string, docs map[string]string, exists func(string) bool) (out []string) {
	for _, line := range prose(docs[name]) {
		for _, m := range mdLink.FindAllStringSubmatch(line, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			text, document := docs[target]
			if !document && !exists(target) || anchor != "" && !anchors(text)[anchor] {
				out = append(out, m[1])
			}
		}
	}
	return out
}

// danglingNames returns the documents that the text of the file at name speaks of and that
// are not there: beside it, at the root, or in docs.
func danglingNames(name, text string, docs map[string]string) (out []string) {
	for _, m := range mdName.FindAllString(text, -1) {
		if strings.Contains(m, "*") {
			continue
		}
		_, beside := docs[path.Join(path.Dir(name), m)]
		_, top := docs[path.Clean(m)]
		_, below := docs[path.Join("docs", m)]
		if !beside && !top && !below {
			out = append(out, m)
		}
	}
	return out
}

// danglingFiles returns the files of the repository that a document names in full, as in
// `server/core.go`, and that are not there.
func danglingFiles(text string, exists func(string) bool) (out []string) {
	for _, m := range fileName.FindAllStringSubmatch(text, -1) {
		if !exists(m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}

// labels returns the names of invariants, faults, equations and rules that a document gives a
// place of their own: "- **L4** ...", "| T13 | ..." and "4. **...".
func labels(text string) []string {
	var out []string
	for _, line := range prose(text) {
		m := defined.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for _, name := range append(strings.Split(m[2], ", "), m[1]) {
			if name != "" {
				out = append(out, name)
			}
		}
		if m[3] != "" {
			out = append(out, "rule "+m[3])
		}
	}
	return out
}

// TestDocuments: no line of a document is too long, no link leads nowhere, and no document is
// named that is not there.
func TestDocuments(t *testing.T) {
	docs := documents(t)
	exists := func(p string) bool {
		_, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(p)))
		return err == nil
	}
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		for _, line := range longLines(docs[name]) {
			t.Errorf("%s:%d: longer than %d columns", name, line, maxDocRunes)
		}
		for _, link := range danglingLinks(name, docs, exists) {
			t.Errorf("%s: the link %s leads nowhere", name, link)
		}
		for _, other := range danglingNames(name, strings.Join(prose(docs[name]), "\n"), docs) {
			t.Errorf("%s names %s, and there is no such document", name, other)
		}
		for _, file := range danglingFiles(docs[name], exists) {
			t.Errorf("%s names %s, and there is no such file", name, file)
		}
	}
}

// TestCodeNamesDocuments: documents that code names are there, and so are the rules, invariants
// and faults that comments name: who reads "(T13)" finds it where CONTRIBUTING.md says.
func TestCodeNamesDocuments(t *testing.T) {
	docs := documents(t)
	var known []string
	for _, page := range []string{"design", "faults"} {
		here := labels(docs["docs/"+page+".md"])
		for _, name := range here {
			if slices.Contains(known, name) {
				t.Errorf("docs/%s.md says what %s is, and so does another page", page, name)
			}
		}
		known = append(known, here...)
	}
	for at, text := range docs {
		for _, name := range label.FindAllString(strings.Join(prose(text), "\n"), -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s: no document says what %s is", at, name)
			}
		}
	}
	for _, s := range load(t) {
		if s.dir() == "internal/tidy" {
			continue
		}
		for _, other := range danglingNames(s.path, string(s.text), docs) {
			t.Errorf("%s names %s, and there is no such document", s.path, other)
		}
		for _, g := range s.ast.Comments {
			for _, name := range shouted.FindAllString(g.Text(), -1) {
				t.Errorf("%s:%d: %s is no document", s.path, s.line(g.Pos()), name)
			}
			for _, name := range label.FindAllString(g.Text(), -1) {
				if !slices.Contains(known, strings.Replace(name, "Rule", "rule", 1)) {
					t.Errorf("%s:%d: no document says what %s is", s.path, s.line(g.Pos()), name)
				}
			}
		}
	}
}

// TestLongLines: the check finds lines of prose and of code, and leaves tables alone.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("é", maxDocRunes+1)
	lines := []string{"# A", long[2:], long, "| " + long + " |", "```", long, "```", long}
	text := strings.Join(lines, "\n")
	if got := longLines(text); !slices.Equal(got, []int{3, 6, 8}) {
		t.Errorf("too long are lines %v, want 3, 6 and 8", got)
	}
}

// TestDangling: the checks find links, documents and labels that are not there.
func TestDangling(t *testing.T) {
	docs := map[string]string{
		"README.md": "[a](docs/a.md#one-two), [gone](docs/gone.md), `a.md`, docs/gone.md, docs/*.md",
		"docs/a.md": "## One, `two`\n[top](../README.md), [here](#one-two), [none](#three)\n" +
			"[p](p.svg), [q](q.svg), [web](https://a.example/x.md)\n" +
			"```\n[fenced](no.md)\n## Three\n```\n",
	}
	exists := func(p string) bool { return p == "docs/p.svg" }
	for name, want := range map[string][]string{
		"README.md": {"docs/gone.md"}, "docs/a.md": {"#three", "q.svg"},
	} {
		if got := danglingLinks(name, docs, exists); !slices.Equal(got, want) {
			t.Errorf("%s: dangling are %q, want %q", name, got, want)
		}
	}
	text := "as docs/a.md says, a.md too; b.md and docs/c.md do not"
	got := danglingNames("x/y.go", text, docs)
	if want := []string{"b.md", "docs/c.md"}; !slices.Equal(got, want) {
		t.Errorf("documents that are not there are %q, want %q", got, want)
	}
	got = danglingFiles("`docs/p.svg`, `docs/q.svg`, `p.svg`, docs/q.svg", exists)
	if want := []string{"docs/q.svg"}; !slices.Equal(got, want) {
		t.Errorf("files that are not there are %q, want %q", got, want)
	}
	got = labels("1. **Clocks.** See **L9**.\n- **L4** one\n| T17a | f |\n| T22, T23 | g |\nT5\n")
	if want := []string{"rule 1", "L4", "T17a", "T22", "T23"}; !slices.Equal(got, want) {
		t.Errorf("labels are %q, want %q", got, want)
	}
}
