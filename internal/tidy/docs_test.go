package tidy

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// named is a test, or what begins the names of several, as documents name it.
var named = regexp.MustCompile(`\b(Test|Fuzz|Benchmark|Example)[A-Z]\w*\*?`)

// missingTests returns the tests that text names and that are not among names.
func missingTests(text string, names []string) (missing []string) {
	for _, name := range named.FindAllString(text, -1) {
		begin, several := strings.CutSuffix(name, "*")
		ok := slices.ContainsFunc(names, func(n string) bool {
			return n == name || several && strings.HasPrefix(n, begin)
		})
		if !ok {
			missing = append(missing, name)
		}
	}
	return missing
}

// TestDocsNameTests: a document that names a test as its witness names one that is there.
func TestDocsNameTests(t *testing.T) {
	var names []string
	for _, s := range load(t) {
		if !s.isTest() {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names = append(names, f.Name.Name)
			}
		}
	}
	docs, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	docs = append(docs, filepath.Join(root(t), "README.md"))
	for _, path := range docs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range missingTests(string(text), names) {
			t.Errorf("%s names %s, and there is no such test", filepath.Base(path), name)
		}
	}
}

// TestMissingTests: the check finds a name that is not there, whole or as a beginning.
func TestMissingTests(t *testing.T) {
	text := "`lease` TestHere, TestT1*; `fsm` TestGone, TestT2*, TestHereToo"
	got := missingTests(text, []string{"TestHere", "TestT1Alone"})
	if want := []string{"TestGone", "TestT2*", "TestHereToo"}; !slices.Equal(got, want) {
		t.Errorf("missing are %v, want %v", got, want)
	}
}

// TestFaultsAreTested: every fault of docs/faults.md is named by a test, as that page says.
func TestFaultsAreTested(t *testing.T) {
	var tests strings.Builder
	for _, s := range load(t) {
		if s.isTest() && s.dir() != "internal/tidy" {
			tests.Write(s.text)
		}
	}
	for _, name := range labels(documents(t)["docs/faults.md"]) {
		if !regexp.MustCompile(name + `\D`).MatchString(tests.String()) {
			t.Errorf("docs/faults.md has %s, and no test names it", name)
		}
	}
}
