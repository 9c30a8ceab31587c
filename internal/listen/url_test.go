package listen

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestParseURLs checks that every form accepted by etcd is accepted, and that errors are specific.
func TestParseURLs(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{"", "", ""},
		{"http://localhost:2379", "http://localhost:2379", ""},
		{"http://127.0.0.1:2379", "http://127.0.0.1:2379", ""},
		{"https://[::1]:2379", "https://[::1]:2379", ""},
		{"http://0.0.0.0:0", "http://0.0.0.0:0", ""},
		{"http://:2379", "http://:2379", ""},
		{"unix://localhost:1", "unix://localhost:1", ""},
		{"unix:///run/a.sock", "unix:///run/a.sock", ""},
		{"unixs:///run/a.sock", "unixs:///run/a.sock", ""},
		{"unix:a.sock", "unix:a.sock", ""},
		{" http://b:1 , http://a:1 ,http://b:1", "http://a:1,http://b:1", ""},
		{"localhost:2379", "", "scheme"},
		{"127.0.0.1:2379", "", "first path segment"},
		{"ftp://a:1", "", "not one of http, https, unix, unixs"},
		{"http://a", "", "needs a host and a port"},
		{"http://a:1/", "", "nothing may follow the port"},
		{"http://a:1/path", "", "nothing may follow the port"},
		{"http://a:1?q", "", "nothing may follow the port"},
		{"http://u:p@a:1", "", "user name"},
		{"http://a:65536", "", "65535"},
		{"http://a:x", "", "port"},
		{"unix://", "", "needs a path"},
		{"http://a:1,,http://b:1", "", "no scheme"},
	} {
		got, err := ParseURLs(c.in)
		if c.err != "" {
			if !errors.Is(err, errURL) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error %v, want one with %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil || join(got) != c.want {
			t.Errorf("%q: %q, %v, want %q", c.in, join(got), err, c.want)
		}
	}
}

func join(us []url.URL) string {
	var s []string
	for _, u := range us {
		s = append(s, u.String())
	}
	return strings.Join(s, ",")
}

// FuzzParseURLs checks that no input makes the parser panic, and that parsed URLs survive being
// converted to text and back.
func FuzzParseURLs(f *testing.F) {
	for _, s := range []string{
		"http://localhost:2379", "unix://a:1,unixs:///b", "http://[::1]:0", ",",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		us, err := ParseURLs(s)
		if err != nil {
			if !errors.Is(err, errURL) {
				t.Fatalf("%q: error without its sentinel: %v", s, err)
			}
			return
		}
		for _, u := range us {
			if network, addr := Address(u); network == "" || addr == "" {
				t.Fatalf("%q: URL %v has no address", s, u)
			}
			again, err := parseURL(u.String())
			if err != nil || again.String() != u.String() {
				t.Fatalf("%q: %q parses to %q, %v", s, u.String(), again.String(), err)
			}
		}
	})
}

// TestCheck checks that a DNS name is rejected as a listen address, because it could resolve to any
// address, and that a URL without a host cannot be advertised.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		url             string
		bind, advertise bool
	}{
		{"http://127.0.0.1:1", true, true},
		{"http://localhost:1", true, true},
		{"http://[::]:1", true, true},
		{"http://:1", true, false},
		{"http://example.org:1", false, true},
		{"unix:///a", true, true},
		{"unixs://example.org:1", true, true},
	} {
		u, err := parseURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckBind(u); (err == nil) != c.bind {
			t.Errorf("bind %s: %v", c.url, err)
		}
		if err := CheckAdvertise(u); (err == nil) != c.advertise {
			t.Errorf("advertise %s: %v", c.url, err)
		}
	}
}

// TestListenUnix checks that the socket file of a killed process does not prevent a restart. A
// socket in use, or another type of file, is not removed.
func TestListenUnix(t *testing.T) {
	dir, err := os.MkdirTemp("", "leasehold") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	u := url.URL{Scheme: "unix", Path: path}

	first, err := Listen(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), u); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("a second listener: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // like kill -9
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(t.Context(), u)
	if err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	_ = second.Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), u); err == nil {
		t.Fatal("listened over a plain file")
	}
	if data, _ := os.ReadFile(path); string(data) != "precious" {
		t.Fatal("the plain file is gone")
	}
}
