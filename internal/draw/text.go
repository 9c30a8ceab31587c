package draw

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A Style is how text pictures look.
type Style struct {
	// Width is the number of columns to fill, at least 40.
	Width int
	// ASCII leaves out letters that some terminals lack.
	ASCII bool
}

// A look is how a kind of span or mark is drawn and named.
type look struct {
	kind         Kind
	ascii, other rune
	name         string
}

// looks are in the order of the legend.
var looks = []look{
	{holds, '#', '█', "holds"},
	{leased, '=', '▒', "lease stands"},
	{down, 'x', '╳', "issuer away"},
	{nobody, '.', '·', "nobody holds"},
	{grant, 'G', 'G', "grant"},
	{renewal, 'R', 'R', "renewal"},
	{crash, '!', '!', "fails"},
	{recovery, '^', '^', "is back"},
	{takeover, 'T', 'T', "takes over"},
	{stops, 'S', 'S', "stops"},
}

func lookOf(k Kind) look {
	for _, l := range looks {
		if l.kind == k {
			return l
		}
	}
	panic(fmt.Sprintf("draw: no look for kind %d", k)) // every kind has one, tested
}

func (l look) letter(s Style) rune {
	if s.ASCII {
		return l.ascii
	}
	return l.other
}

const minWidth = 40

// Text draws a timeline: a line for each lane, an axis in time, and a legend of
// what occurs.
func Text(w io.Writer, t Timeline, s Style) error {
	s.Width = max(s.Width, minWidth)
	name := 0
	for _, l := range t.Lanes {
		name = max(name, len(l.Name))
	}
	cols := s.Width - name - 3
	at := func(d time.Duration) int {
		return max(0, min(cols-1, int(float64(cols)*float64(d)/float64(t.End))))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", t.Title)
	seen := map[Kind]bool{}
	for _, l := range t.Lanes {
		row := []rune(strings.Repeat(" ", cols))
		for _, sp := range l.Spans {
			seen[sp.Kind] = true
			for i := at(sp.From); i < max(at(sp.To), at(sp.From)+1); i++ {
				row[i] = lookOf(sp.Kind).letter(s)
			}
		}
		for _, m := range l.Marks {
			seen[m.Kind] = true
			row[at(m.At)] = lookOf(m.Kind).letter(s)
		}
		fmt.Fprintf(&out, "%*s  %s\n", name, l.Name, strings.TrimRight(string(row), " "))
	}
	fmt.Fprintf(&out, "%*s  %s\n", name, "", axis(t.End, cols))
	var legend []string
	for _, l := range looks {
		if seen[l.kind] {
			legend = append(legend, fmt.Sprintf("%c %s", l.letter(s), l.name))
		}
	}
	for _, line := range Wrap(strings.Join(legend, ", "), s.Width-name-2) {
		fmt.Fprintf(&out, "%*s  %s\n", name, "", line)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// axis is a ruler of so many columns with instants in seconds or milliseconds.
func axis(end time.Duration, cols int) string {
	row := []byte(strings.Repeat(" ", cols))
	step := stepOf(end, max(2, cols/12))
	for d := time.Duration(0); d <= end; d += step {
		label := "|" + d.String()
		if i := int(float64(cols) * float64(d) / float64(end)); i+len(label) <= cols {
			copy(row[i:], label)
		}
	}
	return strings.TrimRight(string(row), " ")
}

// stepOf is a round duration that goes at most n times into end.
func stepOf(end time.Duration, n int) time.Duration {
	for unit := time.Millisecond; ; unit *= 10 {
		for _, f := range []time.Duration{1, 2, 5} {
			if d := unit * f; end/d <= time.Duration(n) {
				return d
			}
		}
	}
}

// Wrap breaks text at spaces into lines of at most so many letters; a longer word
// has a line of its own.
func Wrap(text string, width int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= width:
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}
