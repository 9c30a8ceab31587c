package compare

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"leasehold.dev/internal/load"
)

// A Session is a server's client as programs use it: the server's own Go client, speaking the
// server's own protocol. It is safe for concurrent use.
type Session interface {
	// Put sets a key durably.
	Put(ctx context.Context, key string, value []byte) error
	// Get reads an existing key, linearizably if the server supports that.
	Get(ctx context.Context, key string) error
	// Locker returns a caller's own Locker for the named lock.
	Locker(ctx context.Context, name string) (Locker, error)
	Close() error
}

// A Locker locks and unlocks. Only one goroutine may use it.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// sessionWorkloads returns the workloads that show how a program experiences each server.
func sessionWorkloads() []Workload {
	one := func(what string, prepare func(context.Context, Session) (load.Op, error)) Workload {
		return Workload{
			Name: fmt.Sprintf("client-%s/%d", what, loopCallers), Sessions: 1,
			Doc: what + " through the server's own client",
			run: inLoop(func(ctx context.Context, e *Env) (load.Op, error) {
				return prepare(ctx, e.Sessions[0])
			}),
		}
	}
	return []Workload{
		one("put", sessionPut), one("get", sessionGet), one("lock", sessionLock),
	}
}

// sessionKeys is the number of keys that are written and read.
const sessionKeys = 1000

func sessionKey(i int) string { return "bench/" + strconv.Itoa(i%sessionKeys) }

// fillSession puts each key once.
func fillSession(ctx context.Context, s Session) error {
	return load.Spread(ctx, 64, sessionKeys, func(ctx context.Context, _, i int) error {
		return s.Put(ctx, sessionKey(i), make([]byte, load.ValueSize))
	})
}

func sessionPut(ctx context.Context, s Session) (load.Op, error) {
	value := make([]byte, load.ValueSize)
	return func(ctx context.Context, caller, i int) error {
		return s.Put(ctx, sessionKey(caller*31+i), value)
	}, fillSession(ctx, s)
}

func sessionGet(ctx context.Context, s Session) (load.Op, error) {
	return func(ctx context.Context, caller, i int) error {
		return s.Get(ctx, sessionKey(caller*31+i))
	}, fillSession(ctx, s)
}

// sessionLock locks and unlocks an uncontended lock. Each caller has its own.
func sessionLock(ctx context.Context, s Session) (load.Op, error) {
	list := make([]Locker, loopCallers)
	for i := range list {
		var err error
		if list[i], err = s.Locker(ctx, fmt.Sprintf("lock/%d", i)); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, caller, _ int) error {
		if err := list[caller].Lock(ctx); err != nil {
			return err
		}
		return list[caller].Unlock(ctx)
	}, nil
}

// openSessions opens sessions with a server.
func openSessions(t Target, endpoints []string, n int) ([]Session, error) {
	var list []Session
	for range n {
		s, err := t.Open(endpoints)
		if err != nil {
			return nil, errors.Join(err, closeSessions(list))
		}
		list = append(list, s)
	}
	return list, nil
}

func closeSessions(list []Session) error {
	var errs []error
	for _, s := range list {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
