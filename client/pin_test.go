package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// TestPinnedCluster checks what happens when a member that has lost its disk founds a new cluster
// at the same address. A client of the first cluster rejects the member and reports both IDs,
// whether it detected the first ID or was configured with it.
func TestPinnedCluster(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		dir := inprocess.Dir(t)
		config := inprocess.Config(dir, "m")
		member := inprocess.Start(t, config)
		member.Await()
		learned := inprocess.Connect(t, client.Config{}, member.Endpoint())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := learned.Put(ctx, store.Put{Key: "k", Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		first := learned.ClusterID()
		if first == 0 {
			t.Fatal("it has not learned the cluster's ID")
		}
		member.End()
		again := inprocess.Config(dir, "m")
		again.DataDir += "-anew"
		second := inprocess.Start(t, again)
		second.Await()

		configured := inprocess.Connect(t, client.Config{ClusterID: first}, second.Endpoint())
		for name, c := range map[string]*client.Client{"learned": learned, "configured": configured} {
			_, err := c.Put(ctx, store.Put{Key: "k", Value: []byte("lost")})
			own := fmt.Sprintf("but this client belongs to cluster %x", first)
			if !errors.Is(err, client.ErrOtherCluster) || !strings.Contains(err.Error(), own) ||
				errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: it did not say so before its time was over", name)
			}
		}
		fresh := inprocess.Connect(t, client.Config{}, second.Endpoint())
		r, err := fresh.Range(ctx, store.Range{Key: "k"})
		if err != nil || len(r.KVs) != 0 || fresh.ClusterID() == first {
			t.Errorf("in the second: %v, %v, cluster %x", r, err, fresh.ClusterID())
		}
	})
}

// TestPinWaits checks that the client keeps waiting while one endpoint may still belong to its
// cluster.
func TestPinWaits(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		dir := inprocess.Dir(t)
		config := inprocess.Config(dir, "m")
		member := inprocess.Start(t, config)
		member.Await()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := inprocess.Connect(t, client.Config{}, member.Endpoint())
		if _, err := c.Put(ctx, store.Put{Key: "k"}); err != nil {
			t.Fatal(err)
		}
		member.End()
		stranger := inprocess.Start(t, inprocess.Config(dir, "n"))
		stranger.Await()
		waits := inprocess.Connect(t, client.Config{ClusterID: c.ClusterID()},
			stranger.Endpoint(), member.Endpoint())
		put := make(chan error, 1)
		go func() {
			_, err := waits.Put(ctx, store.Put{Key: "k"})
			put <- err
		}()
		for range 3 {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			_, err := waits.Put(short, store.Put{Key: "other"})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with one endpoint that says nothing: %v", err)
			}
		}
		inprocess.Start(t, config).Await()
		if err := <-put; err != nil {
			t.Error(err)
		}
	})
}
