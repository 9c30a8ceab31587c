package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// errURL is wrapped by every error about URLs.
var errURL = errors.New("listen: bad URL")

// ParseURLs parses a comma-separated list of URLs. As in etcd, the result is sorted and has no
// duplicates, so that two members agree if they have the same list in different orders. An empty
// string yields no URLs.
func ParseURLs(s string) ([]url.URL, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	byText := make(map[string]url.URL)
	for part := range strings.SplitSeq(s, ",") {
		u, err := parseURL(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		byText[u.String()] = u
	}
	urls := make([]url.URL, 0, len(byText))
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		urls = append(urls, byText[text])
	}
	return urls, nil
}

// URLTexts returns URLs as strings.
func URLTexts(urls []url.URL) []string {
	out := make([]string, len(urls))
	for i := range urls {
		out[i] = urls[i].String()
	}
	return out
}

// JoinURLs returns URLs as a comma-separated list.
func JoinURLs(urls []url.URL) string { return strings.Join(URLTexts(urls), ",") }

// parseURL parses one URL: http://HOST:PORT, https://HOST:PORT, unix://PATH or unixs://PATH. In a
// unix URL, the host is the first element of the path. For example, unix://localhost:1 is the file
// "localhost:1" in the working directory.
func parseURL(s string) (url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return url.URL{}, fmt.Errorf("%w: %q: %w", errURL, s, err)
	}
	switch u.Scheme {
	case "http", "https":
		err = checkHostPort(u)
	case "unix", "unixs":
		if _, addr := Address(*u); addr == "" {
			err = errors.New("a unix URL needs a path, as in unix:///run/leasehold.sock")
		}
	case "":
		err = errors.New("it has no scheme; write http:// or https:// before it")
	default:
		err = fmt.Errorf("scheme %q is not one of http, https, unix, unixs", u.Scheme)
	}
	if err != nil {
		return url.URL{}, fmt.Errorf("%w: %q: %w", errURL, s, err)
	}
	return *u, nil
}

func checkHostPort(u *url.URL) error {
	if u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("nothing may follow the port")
	}
	if u.User != nil {
		return errors.New("it must not contain a user name")
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return errors.New("it needs a host and a port, as in http://127.0.0.1:2379")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}

// CheckBind returns an error if a member cannot listen on u. As in etcd, host names other than
// localhost are rejected, because a name could resolve to the address of a different machine, now
// or later.
func CheckBind(u url.URL) error {
	if u.Scheme == "unix" || u.Scheme == "unixs" {
		return nil
	}
	host := u.Hostname()
	if host == "" || host == "localhost" {
		return nil
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return fmt.Errorf("%w: %q: listen on an IP address (0.0.0.0 for all) or localhost, "+
			"not on the name %q", errURL, u.String(), host)
	}
	return nil
}

// CheckAdvertise returns an error if other processes could not use u to reach a member.
func CheckAdvertise(u url.URL) error {
	if u.Scheme != "unix" && u.Scheme != "unixs" && u.Hostname() == "" {
		return fmt.Errorf("%w: %q: an advertised URL needs a host that others can reach",
			errURL, u.String())
	}
	return nil
}

// IsTLS reports whether connections to u are encrypted.
func IsTLS(u url.URL) bool { return u.Scheme == "https" || u.Scheme == "unixs" }

// Address returns the network ("tcp" or "unix") and the address of u for [net.Listen] and
// [net.Dial].
func Address(u url.URL) (network, address string) {
	if u.Scheme == "unix" || u.Scheme == "unixs" {
		return "unix", u.Host + u.Path + u.Opaque
	}
	return "tcp", u.Host
}

// Listen opens u. If the file of a unix socket exists but nothing responds on it, a killed process
// has left it behind, and Listen removes it first. If a process responds on the file, or the file
// is not a socket, Listen returns an error.
func Listen(ctx context.Context, u url.URL) (net.Listener, error) {
	network, addr := Address(u)
	if network == "unix" {
		if err := removeStale(ctx, addr); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", u.String(), err)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, network, addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: %w; another process, perhaps another member, "+
			"is using this port", u.String(), err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", u.String(), err)
	}
	return l, nil
}

// removeStale removes the socket file at path unless a process responds on it.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("the file exists and is not a socket")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return syscall.EADDRINUSE
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
