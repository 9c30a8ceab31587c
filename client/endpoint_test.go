package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
)

// TestEndpointPort checks that an endpoint without a port is rejected immediately, unless the
// program makes the connections itself.
func TestEndpointPort(t *testing.T) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, text := range []string{"a", "http://a", "https://10.0.0.1", "::1", "[::1]", "a:"} {
		c := Config{Endpoints: []string{text}, TLS: secure}
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), "no port") {
			t.Errorf("a client of %q: %v", text, err)
		}
		c.Dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New("none") }
		if l, err := New(c); err != nil {
			t.Errorf("with Dial: a client of %q: %v", text, err)
		} else if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
