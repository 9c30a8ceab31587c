package lock

import (
	"context"
	"errors"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/uses"
)

// ErrInUse means that the session already holds the lock or leads the election with this name, or
// is waiting to do so. Locks are not reentrant: a program that needs two locks with the same name
// must open two sessions.
var ErrInUse = errors.New("lock: the session is already using this name")

// session is a session together with the keys of its locks and candidacies.
type session struct {
	live   *client.Session
	client *client.Client
	lease  *client.Lease
	keys   *uses.Set
}

func of(s *client.Session) *session {
	return &session{s, s.Client(), s.Lease(), uses.Of(s.Context())}
}

// use registers the use of a key. If the key is being given up, use waits for that to finish.
func (s *session) use(ctx context.Context, key string) error {
	free, err := s.keys.Use(ctx, key)
	if err == nil && !free {
		err = ErrInUse
	}
	return err
}

// giveUp runs step in the background and then ends the use of a key. Only the next use of the key
// and the client's Close wait for it.
func (s *session) giveUp(key string, step func(context.Context)) {
	done := s.keys.GiveUp(key)
	background.Start(s.client, func(ctx context.Context) {
		step(ctx)
		done()
	})
}
