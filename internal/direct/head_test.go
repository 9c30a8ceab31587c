package direct

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestHead checks that names are lowercase, that -bin values may be padded, and that values that
// could be mistaken for another line are not sent.
func TestHead(t *testing.T) {
	md, err := parseHead("Some-Name: A: b\r\nx-bin: AA==\r\nx-bin: AP8\r\n")
	if want := (head{"some-name": {"A: b"}, "x-bin": {"\x00", "\x00\xff"}}); err != nil ||
		!maps.EqualFunc(md, want, slices.Equal) {
		t.Errorf("%q, %v", md, err)
	}
	for _, bad := range []head{
		{"a: b": {"c"}},
		{"a\r\nb": {"c"}},
		{"a": {"b\r\nc: d"}},
		{"a": {"\x7f"}},
		{"a": {strings.Repeat("b", maxHead)}},
	} {
		if text, err := encodeHead(bad); err == nil {
			t.Errorf("%.20q became %.20q", bad, text)
		}
	}
}

// FuzzHead checks that parsing never panics, and that metadata survives encoding and parsing again.
func FuzzHead(f *testing.F) {
	f.Add("a: b\r\na: c\r\nx-bin: AP8\r\n")
	f.Add("A: \r\n")
	f.Fuzz(func(t *testing.T, text string) {
		md, err := parseHead(text)
		if err != nil {
			return
		}
		again, err := encodeHead(md)
		if err != nil {
			return
		}
		same, err := parseHead(again)
		if err != nil || fmt.Sprint(same) != fmt.Sprint(md) {
			t.Errorf("%q became %q: %v, %v", text, again, same, err)
		}
	})
}
