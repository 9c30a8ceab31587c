// Package table draws tables of text in the style of etcdctl, with frames of box-drawing
// characters, centered headings in capitals, and right-aligned cells.
//
// It draws only complete tables, which are as wide as their contents.
package table

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Write draws a table. In a heading, an underscore becomes a space. In a cell, a line break begins
// another line of the cell. A row can have fewer cells than there are headings.
func Write(w io.Writer, head []string, rows [][]string) error {
	titles := make([]string, len(head))
	for i, h := range head {
		titles[i] = strings.ToUpper(strings.ReplaceAll(h, "_", " "))
	}
	widths := make([]int, len(head))
	var lines [][]string // lines of the rows, split where a cell has a line break
	for i, t := range titles {
		widths[i] = ansi.StringWidth(t)
	}
	for _, row := range rows {
		for _, line := range split(row, len(head)) {
			for i, cell := range line {
				widths[i] = max(widths[i], ansi.StringWidth(cell))
			}
			lines = append(lines, line)
		}
	}
	var b strings.Builder
	rule(&b, widths, "┌┬┐")
	for i, t := range titles {
		left := (widths[i] - ansi.StringWidth(t)) / 2
		cell(&b, left, t, widths[i]-ansi.StringWidth(t)-left)
	}
	b.WriteString("│\n")
	if len(lines) > 0 {
		rule(&b, widths, "├┼┤")
	}
	for _, line := range lines {
		for i, text := range line {
			cell(&b, widths[i]-ansi.StringWidth(text), text, 0)
		}
		b.WriteString("│\n")
	}
	rule(&b, widths, "└┴┘")
	_, err := io.WriteString(w, b.String())
	return err
}

// split splits a row of n cells into lines, because a cell can have several.
func split(row []string, n int) [][]string {
	lines := [][]string{make([]string, n)}
	for i, text := range row[:min(n, len(row))] {
		for j, part := range strings.Split(text, "\n") {
			if j == len(lines) {
				lines = append(lines, make([]string, n))
			}
			lines[j][i] = strings.TrimSpace(part)
		}
	}
	return lines
}

// rule draws a horizontal line. corners contains the characters for its left end, its crossings and
// its right end.
func rule(b *strings.Builder, widths []int, corners string) {
	c := []rune(corners)
	for i, w := range widths {
		b.WriteRune(c[min(i, 1)])
		b.WriteString(strings.Repeat("─", w+2))
	}
	b.WriteRune(c[2])
	b.WriteByte('\n')
}

func cell(b *strings.Builder, left int, text string, right int) {
	b.WriteString("│ ")
	b.WriteString(strings.Repeat(" ", left))
	b.WriteString(text)
	b.WriteString(strings.Repeat(" ", right))
	b.WriteByte(' ')
}

// Readable returns text from an untrusted source in printable form. The text is quoted if it
// contains anything that a terminal might interpret or not display, and unchanged otherwise.
func Readable(text string) string {
	if strings.ContainsFunc(text, unprintable) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

func unprintable(r rune) bool { return !strconv.IsPrint(r) }
