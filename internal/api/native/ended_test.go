package native

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
)

// TestEnded checks that a stream ends with Canceled only if its client ended it. It ends with
// another code if the member stops, has no leader, or has already rejected a request.
func TestEnded(t *testing.T) {
	stopped := make(chan struct{})
	close(stopped)
	refusal := api.NativeError(invalid("no"), api.Reason(invalid("no")))
	for _, x := range []struct {
		name string
		why  error // cause of the context's end; nil if it has not ended
		err  error // the handler's error; nil means the context's cause
		stop chan struct{}
		want codes.Code
	}{
		{"client", context.Canceled, nil, nil, codes.Canceled},
		{
			"client, while sending", context.Canceled, status.Error(codes.Unavailable, "closed"), nil,
			codes.Canceled,
		},
		{"client, after a refusal", context.Canceled, refusal, nil, codes.InvalidArgument},
		{"member stops", nil, api.ErrStopped, stopped, codes.Unavailable},
		{"member stops, and cancels", context.Canceled, nil, stopped, codes.Unavailable},
		{"no leader", replica.ErrNoLeader, nil, nil, codes.Unavailable},
		{"canceled within", nil, context.Canceled, nil, codes.Unavailable},
		{"client's deadline", context.DeadlineExceeded, nil, nil, codes.DeadlineExceeded},
		{"member stops at a deadline", context.DeadlineExceeded, nil, stopped, codes.Unavailable},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if x.why != nil {
			cancel(x.why)
		}
		err := x.err
		if err == nil {
			err = context.Cause(ctx)
		}
		got := service(newNode(), Options{Stop: x.stop}).ended(ctx, err)
		if status.Code(got) != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
		cancel(nil)
	}
}
