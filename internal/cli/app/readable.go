package app

import (
	"strconv"
	"strings"

	"leasehold.dev/internal/table"
)

// Readable makes untrusted text safe to display.
func Readable(text string) string { return table.Readable(text) }

// ReadableAll applies Readable to each text.
func ReadableAll(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = Readable(text)
	}
	return out
}

// TextsOf converts keys to strings.
func TextsOf(keys [][]byte) []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = string(key)
	}
	return out
}

// Harmless removes terminal control characters from a message, which can span several lines.
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
