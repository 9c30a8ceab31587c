package store_test

import (
	"testing"

	"leasehold.dev/client/store"
)

// TestPrefix: the range of a prefix begins and ends where its keys do. The range of all keys begins
// at the first key that there can be: an empty key would be none.
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
