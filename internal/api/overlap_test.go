package api

import (
	"fmt"
	"testing"
)

// TestMergedSpans: spans that touch become one, and empty ones go.
func TestMergedSpans(t *testing.T) {
	s := merged([]span{{"d", "f"}, {"a", "b"}, {"e", "h"}, {"b", "c"}, {"k", "j"}, {"x", "\x00"}})
	if got := fmt.Sprint(s); got != "[{a c} {d h}]" {
		t.Errorf("merged into %s", got)
	}
	for key, want := range map[string]bool{
		"a": true, "b": true, "bz": true, "c": false, "d": true, "g": true, "h": false, "": false,
	} {
		if s.contain(key) != want {
			t.Errorf("contain(%q) = %v", key, !want)
		}
	}
}
