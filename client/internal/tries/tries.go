// Package tries contains code shared by the packages built on the client. It retries requests with
// an unknown outcome, backs off between attempts, reads long ranges in pages, and waits for events.
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

// Backoff determines how long a loop waits between attempts. Each wait is longer than the previous
// one, up to half a second.
type Backoff struct{ tries int }

// Wait waits until the next attempt. It returns the reason if there is no further attempt.
func (p *Backoff) Wait(ctx context.Context) error {
	d := backoff.Delay(p.tries, 5*time.Millisecond, 500*time.Millisecond)
	p.tries++
	return Pause(ctx, d)
}

// Pause waits for d. If the context ends first, it returns the reason.
func Pause(ctx context.Context, d time.Duration) error {
	if !backoff.Sleep(ctx, d) {
		return fault.Cause(ctx)
	}
	return nil
}

// Unsure reports whether a failed request may have been applied and there is still time to find
// out.
func Unsure(ctx context.Context, err error) bool {
	return errors.Is(err, client.ErrUnknownOutcome) && ctx.Err() == nil
}

// Change tracks the attempts at one change.
type Change struct {
	Backoff
	// Unsure is true if an attempt may have been applied, or may still be applied.
	Unsure bool
}

// Again waits for the next attempt after a failed one. It returns the reason if there is no further
// attempt.
func (c *Change) Again(ctx context.Context, err error) error {
	if Unsure(ctx, err) {
		c.Unsure = true
		err = c.Wait(ctx)
	}
	return Outcome(c.Unsure, err)
}

// Outcome returns the error to report for a change. If any attempt may have been applied, or may
// still be applied, the error also wraps client.ErrUnknownOutcome, regardless of the last error.
func Outcome(unsure bool, err error) error {
	if err == nil || !unsure || errors.Is(err, client.ErrUnknownOutcome) {
		return err
	}
	return fault.Because(client.ErrUnknownOutcome, err)
}

// DefaultTTL is the TTL of leases if the program does not set one.
const DefaultTTL = 10 * time.Second

// ValidID reports whether an ID can be used as part of a key.
func ValidID(id string) bool { return id != "" && !strings.Contains(id, "/") }

// CheckName rejects an empty name for a lock, a queue or a similar object. An empty name usually
// comes from an unset variable.
func CheckName(of, name string) error {
	if name == "" {
		return fmt.Errorf("%w: the name of the %s is empty", client.ErrInvalid, of)
	}
	return nil
}

// pageSize is the number of keys read at a time. It keeps answers from becoming too large.
const pageSize = 1000

// ReadAll reads a range page by page. All pages come from the same revision.
func ReadAll(
	ctx context.Context, c *client.Client, r store.Range,
) (kvs []store.KV, revision int64, err error) {
	r.Limit = pageSize
	p := Backoff{}
	for first := r; ; {
		page, err := c.Range(ctx, r)
		switch {
		case errors.Is(err, client.ErrCompacted) && r.Revision != first.Revision:
			// The revision has been compacted in the meantime, so start over at a new one.
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

// AwaitEvent waits for an event that satisfies is. It also returns if it may have missed such an
// event, because callers check again anyway.
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

// Gone matches deletions of keys. It is intended for AwaitEvent.
func Gone(e *store.Event) bool { return e.Delete }

// Anything matches every event. It is intended for AwaitEvent.
func Anything(*store.Event) bool { return true }

// Both returns a context that ends when either of two contexts ends, with the cause of that
// context.
func Both(ctx, other context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(fault.Cause(other)) })
	return out, func() {
		stop()
		cancel(context.Canceled)
	}
}
