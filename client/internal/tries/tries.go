// Package tries contains the code that the packages above the client share: they retry when an
// outcome is unknown, back off between attempts, read long ranges in pages and wait for events.
package tries

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/fault"
)

// Backoff is how long a loop waits between attempts: longer each time, up to half a second.
type Backoff struct{ tries int }

// Wait waits for the next attempt, or returns the reason why no attempt remains.
func (p *Backoff) Wait(ctx context.Context) error {
	d := backoff.Delay(p.tries, 5*time.Millisecond, 500*time.Millisecond)
	p.tries++
	return Pause(ctx, d)
}

// Pause waits for d, or returns the reason why the context ended.
func Pause(ctx context.Context, d time.Duration) error {
	if !backoff.Sleep(ctx, d) {
		return fault.Cause(ctx)
	}
	return nil
}

// Within is the context key for the outer context of a context that ends with its subject, such as
// the context of the code that runs under a lock.
type Within[T any] struct{ Of *T }

// Outside returns a context for releasing the subject of a context that ends with it: one that ends
// only with the outside context, or when its time is up. Other contexts are returned unchanged.
func Outside(
	ctx context.Context, key any, most time.Duration,
) (context.Context, context.CancelFunc) {
	around, ok := ctx.Value(key).(context.Context)
	if !ok || ctx.Err() != nil {
		return ctx, func() {}
	}
	end := time.Now().Add(most)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	return context.WithDeadline(around, end)
}

// Unsure reports whether a failed request may have been applied and there is still time to find
// out.
func Unsure(ctx context.Context, err error) bool {
	return errors.Is(err, client.ErrUnknownOutcome) && ctx.Err() == nil
}

// Change tracks the attempts at one change.
type Change struct {
	Backoff
	// Unsure is true if an attempt may have been applied, or may still be.
	Unsure bool
}

// Again waits for the next attempt after a failed one, or returns the reason why no attempt
// remains.
func (c *Change) Again(ctx context.Context, err error) error {
	if Unsure(ctx, err) {
		c.Unsure = true
		err = c.Wait(ctx)
	}
	return Outcome(c.Unsure, err)
}

// Outcome returns the error of a change. If any attempt may have been applied, or may still be, it
// is also client.ErrUnknownOutcome, regardless of the last error.
func Outcome(unsure bool, err error) error {
	if err == nil || !unsure || errors.Is(err, client.ErrUnknownOutcome) {
		return err
	}
	return fault.Because(client.ErrUnknownOutcome, err)
}

// DefaultTTL is the TTL of leases for which the program sets none.
const DefaultTTL = 10 * time.Second

// ValidID reports whether an ID can be part of a key.
func ValidID(id string) bool { return id != "" && !strings.Contains(id, "/") }

// CheckName rejects an empty name of a lock, a queue or the like: it is usually an unset variable.
func CheckName(of, name string) error {
	if name == "" {
		return fmt.Errorf("%w: the name of the %s is empty", client.ErrInvalid, of)
	}
	return nil
}

// pageSize is how many keys are read at a time, so that no answer is too large.
const pageSize = 1000

// ReadAll reads a range, page by page, as of one revision.
func ReadAll(
	ctx context.Context, c *client.Client, r store.Range,
) (kvs []store.KV, revision int64, err error) {
	r.Limit = pageSize
	p := Backoff{}
	for first := r; ; {
		page, err := c.Range(ctx, r)
		switch {
		case errors.Is(err, client.ErrCompacted) && r.Revision != first.Revision:
			// The revision was compacted in the meantime: start over with a new one.
			r, kvs = first, nil
			if err := p.Wait(ctx); err != nil {
				return nil, 0, err
			}
			continue
		case err != nil:
			return nil, 0, err
		}
		kvs = append(kvs, page.KVs...)
		if r.Revision == 0 {
			r.Revision = page.Revision
		}
		if !page.More || len(page.KVs) == 0 {
			return kvs, r.Revision, nil
		}
		r.Key = kvs[len(kvs)-1].Key + "\x00"
	}
}

// AwaitEvent waits for an event in a range, after a revision, for which the function is returns
// true. It also returns if it may have missed one, because the waiter checks again in any case.
func AwaitEvent(
	ctx context.Context, c *client.Client, w store.Watch, is func(*store.Event) bool,
) error {
	watch, err := c.Watch(ctx, w)
	if errors.Is(err, client.ErrCompacted) {
		return nil
	}
	if err != nil {
		return err
	}
	defer watch.Close()
	for {
		u, err := watch.Next(ctx)
		if errors.Is(err, client.ErrCompacted) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range u.Events {
			if is(&u.Events[i]) {
				return nil
			}
		}
	}
}

// Gone matches the deletion of a key, for AwaitEvent.
func Gone(e *store.Event) bool { return e.Delete }

// Anything matches every event, for AwaitEvent.
func Anything(*store.Event) bool { return true }

// Both returns a context that ends when either of two ends, with that one's cause.
func Both(ctx, other context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(fault.Cause(other)) })
	return out, func() {
		stop()
		cancel(context.Canceled)
	}
}
