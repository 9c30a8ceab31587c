// Package kubernetes provides a lock for leader election with client-go and controller-runtime. The
// lock is based on a Leasehold lease.
//
// client-go's own lock compares timestamps and relies on the leader to stop. A leader that was
// paused, or whose clock jumped, goes on working alongside its successor until it notices the
// change. With a [Lock]
//
//   - no candidate can lead before the cluster has ended the previous leader's lease;
//   - the context of a leader's work ends before that, according to the leader's own clock: see
//     [Lock.Callbacks] and, for controller-runtime, [Lock.Start];
//   - each leader has a fencing token that is larger than the tokens of all earlier leaders: see
//     [Lock.Token]. A pause can still occur between a check and a write, so send the token with
//     each write, and let the receiver reject smaller tokens.
//
// All candidates must use this lock. It does not exclude candidates that use a Lease of the API
// group coordination.k8s.io.
package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
)

// ErrNotLeading is returned by [Lock.Token] while this candidate does not lead.
var ErrNotLeading = errors.New("kubernetes: this candidate is not the leader")

// Config describes a [Lock].
type Config struct {
	// Client is the client of the cluster that holds the lock.
	Client *client.Client
	// Name is the name of the election. The record is stored under the key "leader-election/NAME".
	Name string
	// Identity identifies the candidate. It must be unique among the candidates.
	Identity string
	// TTL is how long no other candidate can lead after a leader has stopped renewing its lease,
	// because it crashed or lost its connection. The default is 15 s. A successor leads no later
	// than TTL plus RetryPeriod after the last renewal. The elector's LeaseDuration has no effect,
	// except that RenewDeadline and RetryPeriod must be shorter.
	TTL time.Duration
	// Record, if not nil, is called with messages about the lock, such as "became leader".
	Record func(message string)
}

// Lock is a [resourcelock.Interface] for one candidate. Its methods are safe for concurrent use.
type Lock struct {
	config Config
	key    string

	mu    sync.Mutex // guards the following fields
	live  *client.Session
	token uint64
	// lost is set while this candidate has lost the leadership but its elector does not know that
	// yet. Until then it must not lead again, because its work has been stopped.
	lost error
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns the lock of a candidate. It sends no request.
func New(c Config) (*Lock, error) {
	if c.Client == nil || c.Name == "" || c.Identity == "" {
		return nil, errors.New("kubernetes: a lock requires a client, a name and an identity")
	}
	if c.TTL == 0 {
		c.TTL = 15 * time.Second
	}
	return &Lock{config: c, key: "leader-election/" + c.Name}, nil
}

// Callbacks wraps the callbacks of a program that uses [leaderelection]. Every such program must
// call it. The context passed to OnStartedLeading is then canceled when the leadership is lost,
// before another candidate can lead. Its cause is the reason.
func (l *Lock) Callbacks(c leaderelection.LeaderCallbacks) leaderelection.LeaderCallbacks {
	start, stop := c.OnStartedLeading, c.OnStoppedLeading
	c.OnStartedLeading = func(ctx context.Context) {
		ctx, cancel := l.during(ctx)
		defer cancel()
		start(ctx)
	}
	c.OnStoppedLeading = func() {
		l.mu.Lock()
		live := l.live
		l.live, l.lost = nil, nil // the elector may run again
		l.mu.Unlock()
		if live != nil { // the elector did not or could not release it
			live.Lease().Close()
		}
		stop()
	}
	return c
}

// during returns a context that ends with ctx or when the leadership is lost.
func (l *Lock) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	live, err := l.leading()
	if err != nil {
		cancel(err)
		return ctx, func() {}
	}
	unhook := context.AfterFunc(live.Context(), func() { cancel(context.Cause(live.Context())) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// Start implements controller-runtime's Runnable. Pass the lock to the manager as
// LeaderElectionResourceLockInterface, and also to its Add method. Start returns an error when the
// leadership is lost. The manager then cancels the contexts of all controllers before another
// candidate can lead.
func (l *Lock) Start(ctx context.Context) error {
	during, cancel := l.during(ctx)
	defer cancel()
	<-during.Done()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("kubernetes: leadership of %s was lost: %w", l.config.Name, context.Cause(during))
}

// NeedLeaderElection implements controller-runtime's LeaderElectionRunnable.
func (l *Lock) NeedLeaderElection() bool { return true }

// Token returns the fencing token of this candidate's leadership, which is larger than the tokens
// of all earlier leaders. If the candidate does not lead, by its own clock, Token returns the
// reason as an error.
func (l *Lock) Token() (uint64, error) {
	if _, err := l.leading(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token, nil
}

// leading returns the session of this candidate's leadership.
func (l *Lock) leading() (*client.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live != nil {
		if err := l.live.Err(); err != nil {
			l.live, l.lost = nil, err
		}
	}
	switch {
	case l.live != nil:
		return l.live, nil
	case l.lost != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotLeading, l.lost)
	default:
		return nil, ErrNotLeading
	}
}

// Get implements [resourcelock.Interface]. A record exists exactly as long as its leader's lease.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	kv, err := l.config.Client.Get(ctx, l.key)
	if errors.Is(err, client.ErrKeyNotFound) {
		return nil, nil, apierrors.NewNotFound(coordination.Resource("leases"), l.config.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	r := new(resourcelock.LeaderElectionRecord)
	if err := json.Unmarshal(kv.Value, r); err != nil {
		return nil, nil, fmt.Errorf("kubernetes: key %s contains no election record: %w", l.key, err)
	}
	// The elector treats a record as renewed if its bytes have changed. This record counts as
	// renewed as long as it exists, although nobody writes it, so Get returns different bytes each
	// time.
	return r, time.Now().AppendFormat(kv.Value, time.RFC3339Nano), nil
}

// Create implements [resourcelock.Interface].
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	switch _, err := l.leading(); {
	case err == nil:
		return l.taken()
	case err != ErrNotLeading: // the leadership was lost, and the elector has not stopped yet
		return err
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	c := l.config.Client
	live, err := c.Open(ctx, client.Grant{
		TTL: l.config.TTL, Owner: l.config.Identity,
		Labels: map[string]string{"leader-election": l.config.Name},
	})
	if err != nil {
		return err
	}
	result, err := c.Txn(ctx, store.Txn{
		If:   []store.Compare{store.Key(l.key).Missing()},
		Then: []store.Op{store.Put{Key: l.key, Value: value, Lease: live.Lease().ID()}},
	})
	if err == nil && !result.Succeeded {
		err = l.taken()
	}
	if err != nil {
		_ = live.Release(ctx) // also undoes a transaction with an unknown outcome
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live, l.token = live, uint64(result.Revision)
	return nil
}

func (l *Lock) taken() error {
	return apierrors.NewAlreadyExists(coordination.Resource("leases"), l.config.Name)
}

// Update implements [resourcelock.Interface]. It writes nothing, because the client renews the
// lease automatically. It reports whether the candidate still leads. If the record names no holder,
// Update releases the lock.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	live, err := l.leading()
	switch {
	case err != nil:
		return apierrors.NewConflict(coordination.Resource("leases"), l.config.Name, err)
	case r.HolderIdentity != "":
		return nil
	}
	l.mu.Lock()
	if l.live == live {
		l.live = nil
	}
	l.mu.Unlock()
	return live.Release(ctx)
}

// RecordEvent implements [resourcelock.Interface].
func (l *Lock) RecordEvent(message string) {
	if l.config.Record != nil {
		l.config.Record(message)
	}
}

// Identity implements [resourcelock.Interface].
func (l *Lock) Identity() string { return l.config.Identity }

// Describe implements [resourcelock.Interface].
func (l *Lock) Describe() string { return "leasehold/" + l.config.Name }
