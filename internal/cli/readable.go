package cli

import (
	"strconv"
	"strings"

	"leasehold.dev/internal/table"
)

// readable is a text that others have chosen, as people may see it.
func readable(text string) string { return table.Readable(text) }

// readableAll is readable for each text of a list.
func readableAll(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = readable(text)
	}
	return out
}

// textsOf returns keys as texts.
func textsOf(keys [][]byte) []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = string(key)
	}
	return out
}

// harmless is a message, of several lines perhaps, without what a terminal might obey.
func harmless(text string) string {
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
