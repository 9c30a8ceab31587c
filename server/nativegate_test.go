package server

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "leasehold.dev/api/leasehold/v1"
)

// While access control is enabled leasehold.v1 tells and does nothing, over a stream that was open
// before either.
func TestGate(t *testing.T) {
	t.Parallel()
	r := run(t, cheapConfig(shortDir(t)))
	conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	leases := v1.NewLeaseServiceClient(conn)
	grant := func() error {
		_, err := leases.Grant(t.Context(), &v1.GrantRequest{TtlMs: 60_000})
		return err
	}
	if err := grant(); err != nil {
		t.Fatal(err)
	}
	open, err := v1.NewStreamServiceClient(conn).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	withUsers(t, r)
	wantGate := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantGate("grant", grant())
	// The stream may have ended with the change: then Recv says why.
	if err := open.Send(new(v1.ClientMessage)); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for err == nil {
		_, err = open.Recv()
	}
	// The stream ends itself, as its caller has not logged in, or the gate ends it.
	if status.Code(err) != codes.Unauthenticated {
		wantGate("stream", err)
	}
}
