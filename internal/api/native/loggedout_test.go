package native

import (
	"errors"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestEndedLoginIsNotAnonymous checks that a caller whose login has ended is rejected instead of
// being treated as anonymous, and adds nothing to the log.
func TestEndedLoginIsNotAnonymous(t *testing.T) {
	s := service(guarded(t), Options{})
	ctx := api.WithCaller(t.Context(), access.InvalidLogin)
	if got, err := (names{leases: s.leases}).WhoAmI(ctx, &pb.WhoAmIRequest{}); !errors.Is(
		err, access.ErrInvalidLogin) {
		t.Errorf("WhoAmI: %v, %v", got, err)
	}
	b := &stream{store: s.store, ctx: ctx}
	if err := b.requireLogin(access.InvalidLogin); !errors.Is(err, access.ErrInvalidLogin) {
		t.Errorf("a command on a stream: %v", err)
	}
}
