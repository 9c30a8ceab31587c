package client

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPlain checks that connection errors are shortened for users and still wrap the original
// error.
func TestPlain(t *testing.T) {
	if plain(nil) != nil {
		t.Error("nothing is an error")
	}
	for _, x := range []struct {
		code       codes.Code
		text, want string
	}{
		{
			codes.Unavailable,
			`connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:2379: ` +
				`connect: connection refused"`,
			"dial tcp 10.0.0.1:2379: connect: connection refused",
		},
		{
			codes.Unavailable,
			`connection error: desc = "transport: authentication handshake failed: tls: \"a\" is not b"`,
			`authentication handshake failed: tls: "a" is not b`,
		},
		{
			codes.Unimplemented, "unknown service leasehold.v1.StreamService",
			"unknown service leasehold.v1.StreamService",
		},
		{codes.Unavailable, `connection error: desc = "cut`, `"cut`},
		{
			codes.Unavailable, // returned by a TLS port: see listen.TestRefusedHandshakes
			`connection error: desc = "error reading server preface: http2: failed reading the ` +
				`frame payload: http2: frame too large, note that the frame header looked like an ` +
				`HTTP/1.1 header"`,
			"error reading server preface: http2: failed reading the frame payload: http2: frame " +
				"too large, note that the frame header looked like an HTTP/1.1 header " +
				"(perhaps the port speaks TLS: use https://)",
		},
	} {
		for _, err := range []error{
			status.Error(x.code, x.text),
			fmt.Errorf("open: %w", status.Error(x.code, x.text)),
		} {
			got := plain(err)
			if got.Error() != x.want {
				t.Errorf("%v\nprinted as %q\nwant %q", err, got, x.want)
			}
			if status.Code(got) != x.code || !errors.Is(got, err) {
				t.Errorf("%v is another error", got)
			}
		}
	}
	if err := errors.New("a plain one"); plain(err).Error() != err.Error() {
		t.Errorf("%q", plain(err))
	}
}
