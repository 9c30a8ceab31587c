// Package kubernetes provides a lock for the leader election of client-go and controller-runtime
// that is based on a Leasehold lease.
//
// client-go's own lock compares timestamps and relies on the leader to stop: a leader that was
// paused, or whose clock jumped, continues to work at the same time as its successor until it
// notices. With a [Lock]
//
//   - no candidate can lead before the leader's lease has ended, which the cluster decides;
//   - the context of a leader's work ends before that, by the leader's own clock: see
//     [Lock.Callbacks] and, for controller-runtime, [Lock.Start];
//   - each leader has a fencing token that is larger than those of all earlier leaders: see
//     [Lock.Token]. A pause can still come between a check and a write, so send the token with
//     each write, and make the receiver refuse smaller ones.
//
// All candidates must use this lock. It does not exclude candidates that use a Lease of
// coordination.k8s.io.
// coordination.k8s.io.
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

// ErrNotLeading is the error of [Lock.Token] while this candidate does not lead.
var ErrNotLeading = errors.New("kubernetes: this candidate is not the leader")

// Config describes a [Lock].
type Config struct {
	// Client is the client of the cluster that holds the lock.
	Client *client.Client
	// Name is the name of the election. The record is under the key "leader-election/NAME".
	Name string
	// Identity names the candidate. No two candidates may have the same one.
	Identity string
	// TTL is how long a leader that has stopped renewing its lease, because it crashed or was
	// disconnected, keeps others from leading. The default is 15 s. The elector's LeaseDuration has
	// no effect, except that RenewDeadline and RetryPeriod must be below it. A successor leads at
	// most TTL plus RetryPeriod after the last renewal.
	TTL time.Duration
	// Record, if not nil, is called with messages about the lock, such as "became leader".
	Record func(message string)
}

// Lock is a [resourcelock.Interface] for one candidate. Its methods may be called from any
// goroutine.
type Lock struct {
	config Config
	key    string

	mu    sync.Mutex // guards the following fields
	live  *client.Session
	token uint64
	// lost is set if this candidate has lost its lead and its elector has not been notified yet. It
	// must not lead again before that, because its work has been stopped.
	lost error
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns the lock of a candidate. It sends nothing.
func New(c Config) (*Lock, error) {
	if c.Client == nil || c.Name == "" || c.Identity == "" {
		return nil, errors.New("kubernetes: a lock requires a client, a name and an identity")
	}
	if c.TTL == 0 {
		c.TTL = 15 * time.Second
	}
	return &Lock{config: c, key: "leader-election/" + c.Name}, nil
}

// Callbacks returns callbacks whose OnStartedLeading has a context that ends when the lead is lost,
// before another candidate can lead; its cause is the reason. A program that uses [leaderelection]
// must wrap its callbacks with it.
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
		if live != nil { // the elector did not release it, or could not
			live.Lease().Close()
		}
		stop()
	}
	return c
}

// during returns a context that ends with ctx, and when the lead is lost.
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

// Start implements controller-runtime's Runnable: pass the lock to the manager as
// LeaderElectionResourceLockInterface, and to its Add. Start returns an error when the lead is
// lost; the manager then ends the contexts of all controllers, before another candidate can lead.
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

// Token returns the fencing token of this candidate's lead, which is larger than those of all
// earlier leaders. The error says why the candidate does not lead, by its clock.
func (l *Lock) Token() (uint64, error) {
	if _, err := l.leading(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token, nil
}

// leading returns the session of this candidate's lead.
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
	// The elector considers a record renewed if its bytes have changed. This one is renewed as long
	// as it exists, without being written.
	return r, time.Now().AppendFormat(kv.Value, time.RFC3339Nano), nil
}

// Create implements [resourcelock.Interface].
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	switch _, err := l.leading(); {
	case err == nil:
		return l.taken()
	case err != ErrNotLeading: // the lead was lost, and the elector has not stopped yet
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
		_ = live.Release(ctx) // also undoes a transaction whose outcome is unknown
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

// Update implements [resourcelock.Interface]. It writes nothing: the client renews the lease by
// itself, and Update reports whether the lead is still valid. A record without a holder releases
// the lock.
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
