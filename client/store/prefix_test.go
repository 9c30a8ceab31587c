package store_test

import (
	"testing"

	"leasehold.dev/client/store"
)

// TestPrefix checks that the range of a prefix contains exactly the keys with that prefix. The
// range of all keys starts at the first valid key, because a key cannot be empty.
func TestPrefix(t *testing.T) {
	for prefix, want := range map[string]store.KeyRange{
		"a/":       {Key: "a/", End: "a0"},
		"a\xff":    {Key: "a\xff", End: "b"},
		"\xff\xff": {Key: "\xff\xff", End: "\x00"},
		"":         {Key: "\x00", End: "\x00"},
	} {
		if got := store.Prefix(prefix); got != want {
			t.Errorf("the range of %q is %q, want %q", prefix, got, want)
		}
	}
}
