package main

import (
	"bytes"
	"context"
	"os/signal"
	"syscall"
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/leaseholdtest"
)

// TestQuickstart runs the program in docs/client.md.
func TestQuickstart(t *testing.T) {
	text := new(bytes.Buffer)
	out = text
	if err := run(t.Context(), leaseholdtest.Start(t).Client(client.Config{})); err != nil {
		t.Fatal(err)
	}
	const want = `host-1 serves at 10.0.0.1:80
the leader is at 10.0.0.1:80
posted under the lock: true
1000 reads queried the cluster 1 times
an email to ann
`
	if text.String() != want {
		t.Errorf("it printed\n%s", text)
	}
}

// terminated is an output that sends SIGTERM to the program and waits until the program has
// received it.
type terminated struct{ ctx context.Context }

func (w terminated) Write(b []byte) (int, error) {
	if w.ctx.Err() == nil {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			return 0, err
		}
		<-w.ctx.Done()
	}
	return len(b), nil
}

// TestTerminated checks that a program stopped by SIGTERM while it serves, leads or holds a lock
// frees everything immediately. Nothing is held once Close has returned.
func TestTerminated(t *testing.T) {
	server := leaseholdtest.Start(t)
	observer := server.Client(client.Config{})
	for name, program := range map[string]func(context.Context, *client.Client) error{
		"register": register, "elect": elect, "post": post,
	} {
		c := server.Client(client.Config{})
		ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
		out = terminated{ctx}
		if err := program(ctx, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		stop()
		if err := c.Close(); err != nil || ctx.Err() == nil {
			t.Errorf("%s: closed: %v; terminated: %v", name, err, ctx.Err())
		}
		for l, err := range observer.List(t.Context(), leases.Filter{}) {
			t.Errorf("%s: lease %v lives on; %v", name, l, err)
		}
		for _, prefix := range []string{"web/", "scheduler/", "ledger/"} {
			r, err := observer.Range(t.Context(), store.Prefix(prefix).Range())
			if err != nil || len(r.KVs) > 0 {
				t.Errorf("%s: still held: %v, %v", name, r.KVs, err)
			}
		}
	}
}
