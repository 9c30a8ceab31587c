package keys

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSplitWords checks the quoting rules of txn and watch.
func TestSplitWords(t *testing.T) {
	for _, tc := range []struct {
		line string
		want []string
	}{
		{``, nil},
		{`   `, nil},
		{`put a b`, []string{"put", "a", "b"}},
		{"  put\ta   b ", []string{"put", "a", "b"}},
		{`put "a b" 'c d'`, []string{"put", "a b", "c d"}},
		{`put "a\n\x41\"" ''`, []string{"put", "a\nA\"", ""}},
		{`put "a'b" 'c"d'`, []string{"put", "a'b", `c"d`}},
		{`put 'a\'`, []string{"put", `a\`}},
		{`a"b c"`, []string{`a"b`, `c"`}},
		{`"ab`, []string{"ab"}},
		{`'ab cd`, []string{"ab", "cd"}},
		{`""''`, []string{"", ""}},
	} {
		got, err := splitWords(tc.line)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("splitWords(%q) = %q, %v; want %q", tc.line, got, err, tc.want)
		}
	}
}

// wordPattern defines a slow equivalent of splitWords.
var wordPattern = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|[^'"\s]\S*`)

func slowSplit(line string) ([]string, error) {
	words := wordPattern.FindAllString(line, -1)
	for i, w := range words {
		switch w[0] {
		case '\'':
			words[i] = w[1 : len(w)-1]
		case '"':
			s, err := strconv.Unquote(w)
			if err != nil {
				return nil, err
			}
			words[i] = s
		}
	}
	return words, nil
}

func FuzzSplitWords(f *testing.F) {
	for _, s := range []string{
		`put "a b" 'c d'`, `"a\"`, `'`, `a"b c`, `"\x"`, "\"\\\xff\"", `"\\" x`, "a\vb",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			t.Skip("a line has no line break inside")
		}
		got, err := splitWords(line)
		want, wantErr := slowSplit(line)
		if (err == nil) != (wantErr == nil) || !slices.Equal(got, want) {
			t.Errorf("splitWords(%q) = %q, %v; the slow twin says %q, %v",
				line, got, err, want, wantErr)
		}
	})
}
