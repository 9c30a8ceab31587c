package endpoint

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"h:1":                "h:1",
		" h:1 ":              "h:1",
		"h:1/":               "h:1",
		"http://h:1/":        "http://h:1",
		"HTTP://h:1":         "http://h:1",
		"Https://[::1]:2379": "https://[::1]:2379",
		"unix:/a/b":          "unix:/a/b",
		"unix:///a/b":        "unix:/a/b",
		"UNIXS:a":            "unixs:a",
	} {
		e, err := Parse(text)
		if err != nil || e.String() != want {
			t.Errorf("Parse(%q) = %v, %v; want %s", text, e, err, want)
		}
		if again, err := Parse(e.String()); again != e || err != nil {
			t.Errorf("Parse(%q) = %v, %v; want %v", e.String(), again, err, e)
		}
	}
	for text, want := range map[string]string{
		"":          "no address",
		"http://":   "no address",
		"unix:":     "no path",
		"unix://":   "no path",
		"ftp://h:1": "unknown scheme",
		"dns:///h":  "unknown scheme",
		"h:1/a":     "has a path",
	} {
		if e, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v; want %q", text, e, err, want)
		}
	}
}

// TestAdvice checks that the error for an endpoint without a port ends with the same endpoint and a
// port.
func TestAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"h":               "h:2379",
		"h:":              "h:2379",
		"https://h/":      "https://h:2379",
		"::1":             "[::1]:2379",
		"[::1]":           "[::1]:2379",
		"[::1]:":          "[::1]:2379",
		"::1:2379":        "[::1]:2379",
		"http://::1:2379": "http://[::1]:2379",
		"fd00::5:2379":    "[fd00::5]:2379",
		"fe80::1%eth0":    "[fe80::1%eth0]:2379",
		"fd00::5":         "[fd00::5]:2379",
		"a:b:c":           "[a:b:c]:2379",
	} {
		_, err := Parse(text)
		if !errors.Is(err, ErrNoPort) || !strings.HasSuffix(err.Error(), " "+want) {
			t.Errorf("Parse(%q): %v; want advice %s", text, err, want)
		}
	}
}

func TestNormalize(t *testing.T) {
	got, err := Normalize([]string{"h:1", "", " ", "http://g:2/"})
	if want := []string{"h:1", "http://g:2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Normalize = %q, %v; want %q", got, err, want)
	}
	if got, err := Normalize([]string{"h:1", "g"}); err == nil || got != nil {
		t.Errorf("Normalize of an endpoint without a port = %q, %v", got, err)
	}
}

func TestNetwork(t *testing.T) {
	for text, want := range map[string]string{"h:1": "tcp h:1", "unixs:/a": "unix /a"} {
		e, err := Parse(text)
		if network, address := e.Network(); err != nil || network+" "+address != want {
			t.Errorf("%q: %s %s, %v; want %s", text, network, address, err, want)
		}
		if secure := e.Scheme == "unixs"; e.Secure() != secure {
			t.Errorf("%q: secure is %v", text, e.Secure())
		}
	}
}
