// Package endpoint parses the addresses at which members serve clients. The client library, the
// command line, relays and serve --join all use it, so that they accept the same spellings.
package endpoint

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// ErrNoPort means that an endpoint has no port.
var ErrNoPort = errors.New("no port")

// Endpoint is a parsed endpoint.
type Endpoint struct {
	// Scheme is "http", "https", "unix", "unixs", or empty if the text has none.
	Scheme string
	// Address is host:port, or the path of a socket.
	Address string
}

// Parse parses host:port, http://host:port, https://host:port, unix:path or unixs:path. It ignores
// whitespace around the text, a slash after the port, and the case of the scheme. If the error
// wraps [ErrNoPort], the Endpoint is valid except for its missing port.
func Parse(text string) (Endpoint, error) {
	e := Endpoint{Address: strings.TrimSpace(text)}
	for _, scheme := range []string{"unix", "unixs"} {
		if rest, ok := cutScheme(e.Address, scheme+":"); ok {
			e.Scheme, e.Address = scheme, strings.TrimPrefix(rest, "//")
			if e.Address == "" {
				return e, fmt.Errorf("endpoint %q has no path", text)
			}
			return e, nil
		}
	}
	for _, scheme := range []string{"http", "https"} {
		if rest, ok := cutScheme(e.Address, scheme+"://"); ok {
			e.Scheme, e.Address = scheme, rest
		}
	}
	if strings.Contains(e.Address, "://") {
		return e, fmt.Errorf("endpoint %q has an unknown scheme: use http, https, unix or unixs", text)
	}
	e.Address = strings.TrimSuffix(e.Address, "/")
	if strings.Contains(e.Address, "/") {
		return e, fmt.Errorf("endpoint %q has a path after its port: remove it", text)
	}
	if e.Address == "" {
		return e, fmt.Errorf("endpoint %q has no address", text)
	}
	if _, port, err := net.SplitHostPort(e.Address); err != nil || port == "" {
		return e, &portError{text, e.advice()}
	}
	return e, nil
}

func cutScheme(text, scheme string) (rest string, ok bool) {
	if len(text) < len(scheme) || !strings.EqualFold(text[:len(scheme)], scheme) {
		return text, false
	}
	return text[len(scheme):], true
}

// advice returns the endpoint that was probably intended, given an endpoint without a port.
func (e Endpoint) advice() Endpoint {
	const port = "2379"
	host := strings.Trim(strings.TrimSuffix(e.Address, ":"), "[]")
	if strings.Count(e.Address, ":") < 2 {
		e.Address = host + ":" + port
		return e
	}
	// This is an IPv6 address without brackets. Its last group may have been meant as the port.
	i := strings.LastIndex(host, ":")
	address, last := host[:i], host[i+1:]
	if _, err := netip.ParseAddr(address); err == nil && len(last) == len(port) {
		e.Address = net.JoinHostPort(address, last)
		return e
	}
	e.Address = net.JoinHostPort(host, port)
	return e
}

type portError struct {
	text   string
	advice Endpoint
}

func (e *portError) Error() string {
	return fmt.Sprintf("endpoint %q has no port: use host:port, such as %s", e.text, e.advice)
}

func (e *portError) Unwrap() error { return ErrNoPort }

// Normalize parses a list of endpoints and returns them in canonical form, without empty elements.
func Normalize(texts []string) (out []string, err error) {
	for _, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue
		}
		e, err := Parse(text)
		if err != nil {
			return nil, err
		}
		out = append(out, e.String())
	}
	return out, nil
}

// String returns the endpoint in canonical form.
func (e Endpoint) String() string {
	switch e.Scheme {
	case "":
		return e.Address
	case "unix", "unixs":
		return e.Scheme + ":" + e.Address
	}
	return e.Scheme + "://" + e.Address
}

// Secure reports whether the endpoint requires TLS.
func (e Endpoint) Secure() bool { return e.Scheme == "https" || e.Scheme == "unixs" }

// Network returns the network and the address to dial.
func (e Endpoint) Network() (network, address string) {
	if strings.HasPrefix(e.Scheme, "unix") {
		return "unix", e.Address
	}
	return "tcp", e.Address
}
