package lock

import (
	"context"
	"errors"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/uses"
)

// ErrInUse means that the session already holds the name, or is waiting for it. Locks are not
// reentrant: a program that needs two locks of one name must open two sessions.
var ErrInUse = errors.New("lock: the session is already using this name")

// session is a session with the keys of its locks and candidacies.
type session struct {
	live   *client.Session
	client *client.Client
	lease  *client.Lease
	keys   *uses.Set
}

func of(s *client.Session) *session {
	return &session{s, s.Client(), s.Lease(), uses.Of(s.Context())}
}

// use registers the use of a key. It waits while an earlier use is being given up.
func (s *session) use(ctx context.Context, key string) error {
	free, err := s.keys.Use(ctx, key)
	if err == nil && !free {
		err = ErrInUse
	}
	return err
}

// giveUp ends the use of a key after a background step. Only the next use of the key, and the
// client's Close, wait for it.
func (s *session) giveUp(key string, step func(context.Context)) {
	done := s.keys.GiveUp(key)
	background.Start(s.client, func(ctx context.Context) {
		step(ctx)
		done()
	})
}
