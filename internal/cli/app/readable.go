package app

import (
	"strconv"
	"strings"

	"leasehold.dev/internal/table"
)

// Readable is a text that others have chosen, as people may see it.
func Readable(text string) string { return table.Readable(text) }

// ReadableAll is readable for each text of a list.
func ReadableAll(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = Readable(text)
	}
	return out
}

// TextsOf returns keys as texts.
func TextsOf(keys [][]byte) []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = string(key)
	}
	return out
}

// Harmless is a message, of several lines perhaps, without what a terminal might obey.
func Harmless(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || r == '\t' || strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
