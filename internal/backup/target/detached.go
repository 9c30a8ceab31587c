package target

import (
	"context"
	"errors"
	"fmt"
	"io"

	"leasehold.dev/internal/backup"
)

// detached is a target whose calls return when their context ends, even if the operating system is
// stuck, for example because the server of a network file system is gone. Hung calls stay in their
// goroutines. Once there are mostHanging of them, further calls fail immediately.
type detached struct {
	Target
	places chan struct{}
}

// mostHanging is the maximum number of hung calls.
const mostHanging = 8

func detach(t Target) *detached { return &detached{t, make(chan struct{}, mostHanging)} }

var errHanging = errors.New("the file system does not respond")

// callDetached calls f in another goroutine and waits for it until ctx ends.
func callDetached[T any](ctx context.Context, d *detached, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	select {
	case d.places <- struct{}{}:
	default:
		return none, fmt.Errorf("%s: %w", d.Target, errHanging)
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		<-d.places
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w", d.Target, context.Cause(ctx))
	}
}

// Put implements Target.
func (d *detached) Put(ctx context.Context, c Content) error {
	_, err := callDetached(ctx, d, func() (struct{}, error) {
		return struct{}{}, d.Target.Put(ctx, c)
	})
	return err
}

// Get implements Target.
func (d *detached) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := callDetached(ctx, d, func() (io.ReadCloser, error) { return d.Target.Get(ctx, name) })
	if err != nil {
		return nil, err
	}
	return &detachedReader{ctx, d, r}, nil
}

// List implements Target.
func (d *detached) List(ctx context.Context) ([]backup.Object, error) {
	return callDetached(ctx, d, func() ([]backup.Object, error) { return d.Target.List(ctx) })
}

// Delete implements Target.
func (d *detached) Delete(ctx context.Context, name string) error {
	_, err := callDetached(ctx, d, func() (struct{}, error) {
		return struct{}{}, d.Target.Delete(ctx, name)
	})
	return err
}

type detachedReader struct {
	ctx context.Context
	d   *detached
	r   io.ReadCloser
}

// Read implements io.Reader. It reads into a separate buffer, because a hanging read may write to
// the buffer after Read has returned.
func (r *detachedReader) Read(p []byte) (int, error) {
	b, err := callDetached(r.ctx, r.d, func() ([]byte, error) {
		b := make([]byte, len(p))
		n, err := r.r.Read(b)
		return b[:n], err
	})
	return copy(p, b), err
}

// Close implements io.Closer. It does not wait, because nothing was written that could be lost.
func (r *detachedReader) Close() error {
	go func() { _ = r.r.Close() }()
	return nil
}
