package main

import (
	"bytes"
	"context"
	"errors"
	"os/signal"
	"syscall"
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/test/inprocess"
)

// TestQuickstart runs the program of docs/quickstart.md.
func TestQuickstart(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), inprocess.Run(t, 1)[0].Endpoint(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `the ledger is locked, with a token: true
the leader is at 10.0.0.1:80
2000 reads asked the cluster 2 times
a mail to ann
a mail to bob
`
	if out.String() != want {
		t.Errorf("it says\n%s", out.String())
	}
}

// terminated is an output that sends SIGTERM to the program at its first line, and waits until the
// program knows.
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

// TestTerminated: on SIGTERM the program revokes its lease before it ends.
func TestTerminated(t *testing.T) {
	m := inprocess.Run(t, 1)[0]
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	err := run(ctx, m.Endpoint(), terminated{ctx})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
	c := inprocess.Connect(t, client.Config{}, m.Endpoint())
	for l, err := range c.List(t.Context(), leases.Filter{}) {
		t.Errorf("lease %v lives on; %v", l, err)
	}
}
