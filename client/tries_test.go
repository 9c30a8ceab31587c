package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
)

// TestChangeOfUnknownOutcome checks that a change is retried only after an attempt whose outcome is
// unknown. From then on, every error reports an unknown outcome, even an error from the wait
// between attempts.
func TestChangeOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		refused := client.ErrPermissionDenied
		var c tries.Change
		if err := c.Again(ctx, refused); !errors.Is(err, refused) ||
			errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("refused at once: %v", err)
		}
		if err := c.Again(ctx, client.ErrUnknownOutcome); err != nil || !c.Unsure {
			t.Errorf("the outcome is not known: %v, unsure %v", err, c.Unsure)
		}
		if err := c.Again(ctx, refused); !errors.Is(err, refused) ||
			!errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("refused then: %v", err)
		}
		time.AfterFunc(time.Millisecond, cancel) // the delay between attempts is longer
		if err := c.Again(ctx, client.ErrUnknownOutcome); !errors.Is(err, context.Canceled) ||
			!errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("the context ends within the wait: %v", err)
		}
		if err := c.Again(ctx, client.ErrUnknownOutcome); !errors.Is(err, client.ErrUnknownOutcome) ||
			errors.Is(err, context.Canceled) {
			t.Errorf("the context had ended: %v", err)
		}
	})
}
