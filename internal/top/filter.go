package top

import (
	"fmt"
	"strings"

	"leasehold.dev/client/leases"
)

// matcher returns what a filter means: words that must all be met. "name:", "owner:" and "user:"
// look there at the beginning, and with "=" instead at all of it; "label:k=v" looks for a label,
// and a word alone anywhere, also in the ID and the token.
func matcher(text string) func(*leases.Info) bool {
	var words []func(*leases.Info) bool
	for _, w := range strings.Fields(text) {
		words = append(words, word(w))
	}
	return func(l *leases.Info) bool {
		for _, met := range words {
			if !met(l) {
				return false
			}
		}
		return true
	}
}

// word is what one word of a filter means.
func word(w string) func(*leases.Info) bool {
	if i := strings.IndexAny(w, ":="); i > 0 {
		rest := w[i+1:]
		met := func(text string) bool { return strings.HasPrefix(text, rest) }
		if w[i] == '=' {
			met = func(text string) bool { return text == rest }
		}
		switch w[:i] {
		case "name":
			return func(l *leases.Info) bool { return met(l.Name) }
		case "owner":
			return func(l *leases.Info) bool { return met(l.Owner) }
		case "user":
			return func(l *leases.Info) bool { return met(l.Principal) }
		case "label":
			k, v, valued := strings.Cut(rest, "=")
			return func(l *leases.Info) bool {
				have, ok := l.Labels[k]
				return ok && (!valued || have == v)
			}
		}
	}
	part := strings.ToLower(w)
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), part) }
	return func(l *leases.Info) bool {
		if has(l.Name) || has(l.Owner) || has(fmt.Sprintf("%016x", uint64(l.ID))) ||
			fmt.Sprint(uint64(l.Token)) == w {
			return true
		}
		for k, v := range l.Labels {
			if has(k + "=" + v) {
				return true
			}
		}
		return false
	}
}

// base is what the names begin with that a filter asks for.
func base(filter string) string {
	for _, w := range strings.Fields(filter) {
		if rest, ok := strings.CutPrefix(w, "name:"); ok {
			return rest
		}
	}
	return ""
}

// prefixOf is the group of a name among those that begin with base: up to the next slash or,
// without one, to the digits at its end.
func prefixOf(name, base string) string {
	rest, ok := strings.CutPrefix(name, base)
	if !ok {
		return name
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return base + rest[:i+1]
	}
	return base + strings.TrimRight(rest, "0123456789")
}
