package tidy

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// fences returns the pieces of Go code of a document, without their indentation.
func fences(text string) (out []string) {
	code, in := "", false
	for line := range strings.Lines(text) {
		switch mark := strings.TrimSpace(line); {
		case !in && mark == "```go":
			code, in = "", true
		case in && mark == "```":
			out, in = append(out, code), false
		case in:
			code += flat(line)
		}
	}
	return out
}

// flat is code without its indentation.
func flat(code string) (out string) {
	for line := range strings.Lines(code) {
		out += strings.TrimSpace(line) + "\n"
	}
	return out
}

// TestQuickstartCode: the code of docs/quickstart.md is that of the program that a test runs.
func TestQuickstartCode(t *testing.T) {
	const document, program = "docs/quickstart.md", "examples/quickstart/main.go"
	whole := ""
	for _, s := range load(t) {
		if s.path == program {
			whole = flat(string(s.text))
		}
	}
	list := fences(documents(t)[document])
	if len(list) == 0 {
		t.Errorf("%s has no code", document)
	}
	for _, code := range list {
		if !strings.Contains(whole, code) {
			t.Errorf("%s has code that is not in %s:\n%s", document, program, code)
		}
	}
}

// qualified is an exported name as code outside its package has it.
var qualified = regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)

// TestDocumentCode: documents name only what the packages export.
func TestDocumentCode(t *testing.T) {
	names := map[string]map[string]string{} // by the names of the packages
	for dir, files := range public(t) {
		names[path.Base(dir)] = exported(files)
	}
	for document, text := range documents(t) {
		for _, code := range fences(text) {
			for _, m := range qualified.FindAllStringSubmatch(code, -1) {
				if all := names[m[1]]; all != nil && all[m[2]] == "" {
					t.Errorf("%s names %s, which is not there", document, m[0])
				}
			}
		}
	}
}
