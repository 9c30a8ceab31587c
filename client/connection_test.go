package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestConnection checks that Connection reports whether the client is connected to a member, when
// that changes, and why a connection is missing.
func TestConnection(t *testing.T) {
	inBubble(t, 2, Config{AnyMember: true}, func(t *testing.T, c *Client, f *fake) {
		first, err := c.Connection(t.Context())
		if err != nil || first.Endpoint != f.openedAt() {
			t.Errorf("connected to %q, error %v", first.Endpoint, err)
		}
		select {
		case <-first.Changed:
			t.Error("it has changed already")
		default:
		}
		f.set(func() { f.down["a"], f.down["b"] = true, true })
		close(f.last().cut)
		<-first.Changed
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Connection(ctx); !errors.Is(err, ErrUnavailable) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error without a member: %v", err)
		}
		f.set(func() { f.down["b"] = false })
		next, err := c.Connection(t.Context())
		if err != nil || next.Endpoint != "b" {
			t.Errorf("connected to %q, error %v", next.Endpoint, err)
		}
		synctest.Wait()
		select {
		case <-next.Changed:
			t.Error("it has changed already")
		default:
		}
	})
}
