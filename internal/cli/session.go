package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// newSession makes a session of a lease that it grants, and gives up when the context ends, as
// the library's own grant does not, or when the cluster does not answer for as long as a command
// may take: it would try for ever, without a word. The session lives on without the context, so
// that what it has can be given back.
func (a *app) newSession(
	ctx context.Context, c *clientv3.Client, ttl int64,
) (*concurrency.Session, error) {
	short, cancel := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer cancel()
	granted, err := grantOnce(short, clientv3.RetryLeaseClient(c), ttl)
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(c, concurrency.WithLease(granted.ID))
}

// holder is what lock and elect hold: a key on the lease of a session.
type holder struct {
	what    string // for people
	session *concurrency.Session
	key     func() string
	release func(context.Context) error
	lease   *etcdLease
}

// take waits for what is to be held, as long as the session lasts. The library waits for the
// cluster when the context has ended, to take back what it has sent; here that ends with patience.
func (h *holder) take(
	ctx context.Context, patience time.Duration, wait func(context.Context) error,
) error {
	done := make(chan error, 1)
	go func() { done <- wait(ctx) }()
	late := make(<-chan time.Time)
	for over := ctx.Done(); ; over = nil {
		select {
		case err := <-done:
			return err
		case <-h.session.Done():
			return h.lost("its lease has ended")
		case <-late:
			return context.Cause(ctx)
		case <-over:
			late = time.After(patience)
		}
	}
}

// lost is the error of who holds it no more.
func (h *holder) lost(why string) error {
	return withCode(exitLost, fmt.Errorf("%s is lost: %s", h.what, why))
}

// hold returns a context that ends, and why, when it is held no more. The library says when the
// lease has ended, by its clock or by the cluster's word; a watch of the key says it earlier if
// somebody revokes the lease, or deletes the key.
func (h *holder) hold(
	ctx context.Context, c *clientv3.Client, revision int64,
) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	changes := c.Watch(ctx, h.key(), clientv3.WithRev(revision+1), clientv3.WithFilterPut())
	go func() {
		defer end(nil)
		for {
			select {
			case <-h.session.Done():
				end(h.lost("its lease has ended"))
				return
			case r, ok := <-changes:
				switch {
				case len(r.Events) > 0:
					end(h.lost("its key is gone"))
					return
				case !ok:
					changes = nil // the session says it in time
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { end(nil) }
}

// explain adds to the error of who has lost it how its lease has ended, if that has.
func (h *holder) explain(a *app, err error) error {
	var e *exitError
	if !errors.As(err, &e) || e.code != exitLost {
		return err
	}
	if how := a.howEnded(h.lease); how != "" {
		return withCode(exitLost, fmt.Errorf("%w: the lease has ended: %s", err, how))
	}
	return err
}

// giveUp gives it back with its lease, which would outlive the process by its TTL. Of what is lost
// nothing is left to give, and nobody is asked for longer than a short command may take.
func (h *holder) giveUp(patience time.Duration) error {
	select {
	case <-h.session.Done():
		return nil
	default:
	}
	h.session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := h.release(ctx)
	_, revokeErr := h.session.Client().Revoke(ctx, h.session.Lease())
	if err == nil && ctx.Err() != nil {
		err = revokeErr
	}
	return err
}
