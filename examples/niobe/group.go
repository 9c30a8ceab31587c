package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
)

// key is the key under which the cluster stores the configuration.
const key = "niobe/config"

// config lists the replicas, starting with the primary. It is numbered by the revision that wrote
// it.
type config struct {
	Replicas []string `json:"replicas"`
	revision int64
}

func (c *config) primary() string { return c.Replicas[0] }

func (c *config) has(name string) bool { return slices.Contains(c.Replicas, name) }

// without returns the configuration without replica gone and with primary as its primary.
func (c *config) without(gone, primary string) config {
	out := func(name string) bool { return name == gone || name == primary }
	rest := slices.DeleteFunc(slices.Clone(c.Replicas), out)
	return config{Replicas: append([]string{primary}, rest...)}
}

// group contains the cluster and all replicas, so that this demonstration can pass messages between
// them.
type group struct {
	c        *client.Client
	ttl      time.Duration
	replicas map[string]*replica
}

// found writes the first configuration.
func (g *group) found(ctx context.Context, c config) error {
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = g.c.Put(ctx, store.Put{Key: key, Value: value})
	return err
}

// current reads the configuration.
func (g *group) current(ctx context.Context) (config, error) {
	kv, err := g.c.Get(ctx, key)
	if err != nil {
		return config{}, err
	}
	c := config{revision: kv.ModRevision}
	return c, json.Unmarshal(kv.Value, &c)
}

// replace changes the configuration if it is still the one known to the replica. If several
// replicas try at the same time, only one succeeds, no matter what they believe.
func (g *group) replace(ctx context.Context, old, c config) error {
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = g.c.Txn(ctx, store.Txn{
		If:   []store.Compare{store.Key(key).ModRevision(store.Equal, old.revision)},
		Then: []store.Op{store.Put{Key: key, Value: value}},
	})
	if errors.Is(err, client.ErrUnknownOutcome) {
		return nil // the next read of the configuration shows the outcome
	}
	return err
}

// serving waits until there is a primary other than the given replica that is permitted to answer.
func (g *group) serving(ctx context.Context, not *replica) (*replica, error) {
	for {
		for _, r := range g.replicas {
			if _, err := r.read(); err == nil && r != not {
				return r, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(g.ttl / 10):
		}
	}
}
