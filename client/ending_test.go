package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestT21 checks a put with a lease that is about to expire or be revoked. Either the put is
// rejected, or its key is deleted together with the lease.
func TestT21(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := ask(t)
		c, other := connect(t, client.Config{}, members...), connect(t, client.Config{}, members...)
		for name, end := range map[string]func(context.Context, *client.Granted) error{
			"expired": func(ctx context.Context, g *client.Granted) error {
				for {
					_, err := other.Describe(ctx, leases.Ref{ID: g.ID})
					switch {
					case errors.Is(err, client.ErrLeaseNotFound):
						return nil
					case err != nil:
						return err
					}
				}
			},
			"revoked": func(ctx context.Context, g *client.Granted) error {
				return other.Revoke(ctx, leases.Ref{ID: g.ID, Token: g.Token})
			},
		} {
			ttl := time.Minute
			if name == "expired" {
				ttl = 100 * time.Millisecond
			}
			g := must[*client.Granted](t)(c.GrantOnly(ctx, client.Grant{TTL: ttl}))
			ended := make(chan error, 1)
			go func() { ended <- end(ctx, g) }()
			var err error
			puts := 0
			for last := false; err == nil && !last; puts++ {
				last = len(ended) > 0 // the lease has ended, so this put is the last
				_, err = c.Put(ctx, store.Put{Key: fmt.Sprint(name, "/", puts), Lease: g.ID})
			}
			if !errors.Is(err, client.ErrLeaseNotFound) {
				t.Errorf("%s: after %d puts: %v", name, puts, err)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			r := must[store.RangeResult](t)(c.Range(ctx, store.Range{Key: name + "/", End: name + "0"}))
			if len(r.KVs) != 0 {
				t.Errorf("%s: %d keys of %d are left", name, len(r.KVs), puts)
			}
		}
	})
}

// TestClosedClientIsCollected checks that a closed client can be garbage collected even if one of
// the program's callbacks refers to a lease.
func TestClosedClientIsCollected(t *testing.T) {
	members := newCluster(t, 1)
	var freed func()
	func() {
		var part struct {
			slog.Handler
			has *client.Lease
		}
		part.Handler = slog.DiscardHandler
		c := must[*client.Client](t)(client.New(client.Config{
			Endpoints: []string{members[0].Line.Endpoint()}, Logger: slog.New(&part),
		}))
		part.has = must[*client.Lease](t)(c.Grant(ask(t), client.Grant{TTL: time.Minute}))
		freed = rig.Freed(c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	freed()
}
