package keys

import (
	"strconv"
	"strings"

	"leasehold.dev/internal/cli/app"
)

// spaces are the characters that separate words.
const spaces = " \t\n\f\r"

// splitWords splits a line from the standard input of txn or watch into words.
//
// Inside 'single quotes', every character is literal. "Double quotes" support Go's escape
// sequences. A quote inside a word is an ordinary character. As in etcdctl, an unclosed quote is
// ignored.
func splitWords(line string) ([]string, error) {
	var words []string
	for len(line) > 0 {
		switch c := line[0]; {
		case strings.IndexByte(spaces, c) >= 0:
			line = line[1:]
		case c == '\'' || c == '"':
			n := quotedLength(line)
			if n == 0 {
				line = line[1:]
				continue
			}
			word := line[1 : n-1]
			if c == '"' {
				var err error
				if word, err = strconv.Unquote(line[:n]); err != nil {
					return nil, app.WithCode(app.ExitInput, err)
				}
			}
			words, line = append(words, word), line[n:]
		default:
			n := strings.IndexAny(line, spaces)
			if n < 0 {
				n = len(line)
			}
			words, line = append(words, line[:n]), line[n:]
		}
	}
	return words, nil
}

// quotedLength returns the length of the quoted string at the beginning of s, including both
// quotes, or 0 if it is not closed.
func quotedLength(s string) int {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return i + 1
		case s[i] == '\\' && quote == '"':
			i++
		}
	}
	return 0
}
