package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/internal/fault"
)

// errCommandEnded means that what the command ran under was lost, and why is said behind it.
var errCommandEnded = errors.New("the command was ended")

// A heldLease is what a command runs under: a lock, a membership or an item, by its lease.
type heldLease struct {
	lease *client.Lease
	// stdin is for the command; nil for that of this process.
	stdin io.Reader
	// env are variables for the command, besides those of the lease.
	env []string
	// news is printed if there is no command.
	news string
}

// ValidUntil implements tenure.
func (h heldLease) ValidUntil() time.Time { return h.lease.ValidUntil() }

// Context implements tenure.
func (h heldLease) Context() context.Context { return h.lease.Context() }

// runUnderLease runs a command while a lease is held: the command is ended before the lease is.
func (a *app) runUnderLease(h heldLease, command []string) error {
	stdin := h.stdin
	if stdin == nil {
		stdin = a.Stdin
	}
	ch, err := a.startFed(stdin, command, append([]string{
		fmt.Sprintf("LEASEHOLD_TOKEN=%d", h.lease.Token()),
		fmt.Sprintf("LEASEHOLD_LEASE=%x", int64(h.lease.ID())),
	}, h.env...))
	if err != nil {
		return err
	}
	ttl := h.lease.Info().TTL
	if ch.under(h, notice{term: ttl / 4, kill: ttl / 40}) {
		why := h.lease.Err()
		if why == nil {
			why = errors.New("the lease could not be renewed in time")
		}
		return withCode(exitLost, fault.Because(errCommandEnded, why))
	}
	return ch.exit()
}

// runOrWait runs the command, if there is one, or waits for a signal, as long as the lease is
// valid. Then it ends what hangs on the lease, without trying for longer than that would live
// anyway.
func (a *app) runOrWait(h heldLease, command []string, end func(context.Context) error) error {
	var err error
	if len(command) > 0 {
		err = a.runUnderLease(h, command)
	} else {
		ctx, cancel := context.WithCancelCause(h.Context())
		now := a.cancelBySignal(cancel)
		if a.waiting != nil {
			a.waiting.passOn(now.signals)
		}
		a.say("%s\n", h.news)
		<-ctx.Done()
		now.stop()
		if why := h.lease.Err(); why != nil {
			err = withCode(exitLost, why)
		}
	}
	last, done := context.WithTimeout(context.Background(), h.lease.Info().TTL)
	defer done()
	if endErr := end(last); err == nil && endErr != nil {
		err = withCode(exitNoCore, endErr)
	}
	return err
}

// leastTTL is the shortest TTL of the commands that hold something.
const leastTTL = 100 * time.Millisecond

func checkTTL(ttl time.Duration) error {
	if ttl < leastTTL {
		return badArgs("--ttl must be at least %v, not %v", leastTTL, ttl)
	}
	return nil
}

// requireName says that a queue, a pool or a group has to have a name: an empty one is a variable
// of a shell that is not set.
func requireName(what, name string) error {
	if name == "" {
		return badArgs("the name of the %s is empty", what)
	}
	return nil
}
