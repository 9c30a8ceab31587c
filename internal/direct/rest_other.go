//go:build !linux

package direct

import (
	"context"
	"errors"
	"time"
)

// Rest is always nil on this platform. Streams never rest.
type Rest struct{}

// RestOf returns nil.
func RestOf(context.Context) *Rest { return nil }

// Await returns true.
func (*Rest) Await(time.Duration) bool { return true }

// Begin returns false.
func (*Rest) Begin(func()) bool { return false }

func (*Rest) close() {}

func (*serverStream) withRest(ctx context.Context) context.Context { return ctx }

type poller struct{}

func newPoller() (*poller, error) { return nil, errors.ErrUnsupported }

func (*poller) close() {}
