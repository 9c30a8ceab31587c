package kubernetes

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"leasehold.dev/client"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestManager checks that when a controller-runtime manager loses the lead, its controllers stop
// before another manager's controllers start, and the manager stops with an error.
func TestManager(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		began, ended := make(chan string, 2), make(chan string, 2)
		run := func(ctx context.Context, name string) (cl *client.Client, stopped chan error) {
			cl = r.Dial(client.Config{})
			lock, err := New(Config{Client: cl, Name: "test", Identity: name, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			lease, deadline, retry := ttl, 800*time.Millisecond, 200*time.Millisecond
			mgr, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
				Metrics:        metrics.Options{BindAddress: "0"},
				LeaderElection: true, LeaderElectionResourceLockInterface: lock,
				LeaseDuration: &lease, RenewDeadline: &deadline, RetryPeriod: &retry,
			})
			if err != nil {
				t.Fatal(err)
			}
			controller := manager.RunnableFunc(func(ctx context.Context) error {
				began <- name
				<-ctx.Done()
				ended <- name
				return nil
			})
			for _, part := range []manager.Runnable{lock, controller} {
				if err := mgr.Add(part); err != nil {
					t.Fatal(err)
				}
			}
			stopped = make(chan error, 1)
			go func() { stopped <- mgr.Start(ctx) }()
			return cl, stopped
		}
		ctx, stop := context.WithCancel(t.Context())
		clientA, stoppedA := run(ctx, "a")
		if got := await(t, began); got != "a" {
			t.Fatalf("%s leads first", got)
		}
		_, stoppedB := run(ctx, "b")
		time.Sleep(5 * ttl)
		r.Cut(clientA)
		if got := await(t, began); got != "b" {
			t.Fatalf("%s leads second", got)
		}
		select {
		case got := <-ended:
			if got != "a" {
				t.Errorf("%s ended", got)
			}
		default:
			t.Error("a's controller runs while b's does")
		}
		if err := <-stoppedA; err == nil {
			t.Error("a's manager stopped without an error")
		}
		stop()
		if err := <-stoppedB; err != nil {
			t.Errorf("b's manager: %v", err)
		}
	})
}
