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
	var list []Workload
	add := func(what string, callers, sessions int, prepare sessionsOp) {
		name := fmt.Sprintf("client-%s/%d", what, callers)
		if sessions > 1 {
			name += "x" + strconv.Itoa(sessions)
		}
		list = append(list, Workload{
			Name: name, Sessions: sessions,
			Doc: fmt.Sprintf("%s through the server's own client; clients: %d", what, sessions),
			run: inLoop(callers, func(ctx context.Context, e *Env) (load.Op, error) {
				return prepare(ctx, e.Sessions)
			}),
		})
	}
	add("put", 64, 1, sessionPut)
	add("get", 64, 1, sessionGet)
	add("get", 64, 8, sessionGet)
	return append(list, Workload{
		Name: "client-lock/64", Sessions: 1, run: lockCycles(64, bySession),
		Doc: "locks and unlocks of 64 callers, a lock each; an operation is a cycle",
	}, Workload{
		Name: "client-handover/16", Sessions: 16, run: handover(bySession),
		Doc: "one lock, 16 clients; latency from unlock sent to the next holder's answer",
	}, Workload{
		Name: "client-renew", Sessions: 1, Granting: true, run: runRenew,
		Doc: "renewals of 100,000 leases, in batches if the server takes them",
	})
}

// A sessionsOp prepares an operation. The operation's callers are distributed evenly over the
// sessions.
type sessionsOp func(context.Context, []Session) (load.Op, error)

// sessionKeys is the number of keys that are written and read.
const sessionKeys = 1000

func sessionKey(i int) string { return "bench/" + strconv.Itoa(i%sessionKeys) }

// fillSession puts each key once.
func fillSession(ctx context.Context, list []Session) error {
	return load.Spread(ctx, 64, sessionKeys, func(ctx context.Context, _, i int) error {
		return list[0].Put(ctx, sessionKey(i), make([]byte, load.ValueSize))
	})
}

func sessionPut(ctx context.Context, list []Session) (load.Op, error) {
	value := make([]byte, load.ValueSize)
	return func(ctx context.Context, caller, i int) error {
		return list[caller%len(list)].Put(ctx, sessionKey(caller*31+i), value)
	}, fillSession(ctx, list)
}

func sessionGet(ctx context.Context, list []Session) (load.Op, error) {
	return func(ctx context.Context, caller, i int) error {
		return list[caller%len(list)].Get(ctx, sessionKey(caller*31+i))
	}, fillSession(ctx, list)
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
