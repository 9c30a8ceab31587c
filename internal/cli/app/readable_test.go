package app

import "testing"

// TestReadable checks that text from other clients is quoted if a terminal could interpret it, and
// that messages are escaped.
func TestReadable(t *testing.T) {
	for text, want := range map[string]string{
		"db/primary": "db/primary", "naïve 名": "naïve 名", "": "", "a\tb": `"a\tb"`,
	} {
		if got := Readable(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if got := Harmless("a\n\x1b[2J\u009b"); got != "a\n\\x1b[2J\\u009b" {
		t.Errorf("escaped %q", got)
	}
}
