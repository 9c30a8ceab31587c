package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/keeper"
	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/timing"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/version"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// requestTimeout is how long a request can wait for the log or for a confirm round if its client
// has not set an earlier deadline. It is etcd's five seconds plus two election timeouts.
const requestTimeout = 7 * time.Second

// node is the member as seen by the API services. It is safe for concurrent use, because everything
// either passes through the core's inbox or is an immutable view.
type node struct {
	*core
	cluster, member uint64
	limits          *api.RateLimiter
	keeper          *keeper.Keeper // nil if backups are not made
	// whether the NOSPACE alarm was raised by this member and not by a client
	alarmed  atomic.Bool
	short    chan struct{}   // capacity 1; signals that a command exceeded the quota
	expelled <-chan struct{} // Done channel of Server.expelled
	// ended is closed when the core has stopped, which calls end, or the member was expelled. One
	// channel for both makes each wait cheaper.
	ended <-chan struct{}
	end   func()
	calls sync.Pool // contains *call
}

var _ etcd.Node = served{}

// call is a request that waits for the core. It is reused unless its caller has given up, because
// the core then still refers to it.
type call struct {
	proposal replica.Proposal
	read     replica.Read
	done     chan struct{} // capacity 1
	timer    *time.Timer
	stages   timing.Stages
}

// newCall returns an unused call.
func (n *node) newCall() *call {
	if c, ok := n.calls.Get().(*call); ok {
		return c
	}
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &call{done: make(chan struct{}, 1), timer: t}
}

// patience returns how long a command can wait, and how much of that time is for caches. So a write
// outlives a cache that has failed (T15).
func (n *node) patience() (all time.Duration, caches lease.TTL) {
	caches = n.View().CacheTTL
	return requestTimeout + time.Duration(caches)*time.Millisecond, caches
}

// maxMargin limits how far ahead of its deadline a call is answered so that the response arrives in
// time. That margin is also at most a tenth of the remaining time.
const maxMargin = 250 * time.Millisecond

// wait returns when the core has answered, the context has ended, the request has timed out, or the
// member has stopped. The call can be reused only in the first case. If there is no leader, wait
// returns shortly before the context's deadline with an error that gives this reason.
func (n *node) wait(ctx context.Context, c *call) (err error) {
	if c.stages.Timed() {
		command := c.proposal.Command != nil
		defer func() { c.stages.Close(command, err != nil) }()
	}
	limit, caches := requestTimeout, lease.TTL(0)
	if c.proposal.Command != nil {
		limit, caches = n.patience()
	}
	rest := time.Duration(0) // remaining part of the limit after the first wait
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at)
		if soon := left - min(left/10, maxMargin); soon < limit {
			limit, rest = soon, limit-soon
		}
	}
	c.timer.Reset(limit)
	defer c.timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.timer.C:
		return n.late(ctx, c, rest, caches)
	case <-n.ended:
	}
	return n.atEnd(c)
}

// late continues wait shortly before the deadline. If there is no leader, it returns an error
// immediately. Otherwise, it waits out the rest of the time.
func (n *node) late(ctx context.Context, c *call, rest time.Duration, caches lease.TTL) error {
	if why := n.Outage(); why != "" {
		return &api.TimeoutError{Caches: caches, Outage: why}
	}
	if rest == 0 {
		return api.Timeout(caches)
	}
	c.timer.Reset(rest)
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.timer.C:
		return api.Timeout(caches)
	case <-n.ended:
	}
	return n.atEnd(c)
}

// atEnd continues wait after the member has stopped.
func (n *node) atEnd(c *call) error {
	select {
	case <-c.done: // one of the core's last answers, such as that this member was removed
		return nil
	default:
		return api.ErrStopped
	}
}

// Outage implements native.Node.
func (n *node) Outage() string {
	if n.status.Load().Leader != 0 {
		return ""
	}
	var silent []string
	for _, m := range n.View().Members {
		if m.ID == n.member || m.Learner {
			continue
		}
		if _, ok := n.peers.Since(m.ID); !ok {
			silent = append(silent, fmt.Sprintf("%s (%x)", m.Name, m.ID))
		}
	}
	text := fmt.Sprintf("no leader: member %x has none", n.member)
	if len(silent) > 0 {
		text += " and has no connection to " + strings.Join(silent, ", ")
	}
	return text + "; a majority of the members must be running and able to reach each other"
}

func (n *node) recycle(c *call) {
	c.proposal, c.read, c.stages = replica.Proposal{}, replica.Read{}, timing.Stages{}
	n.calls.Put(c)
}

// Propose implements api.Node. The command is applied if the caller in ctx has permission to
// execute it.
func (n *node) Propose(ctx context.Context, cmd fsm.Command) (fsm.Result, error) {
	who := api.CallerOf(ctx)
	err := n.requireLogin(ctx, who)
	if fsm.Membership(cmd) {
		// Permission is determined when the command is applied. However, a leader hands over its
		// leadership before it is removed, so check permission before that as well.
		err = n.confirmed(ctx, func(s *access.State) error { return s.CheckRoot(who) })
	}
	if err != nil {
		return fsm.Result{Err: err}, nil
	}
	return n.order(ctx, fsm.OnBehalf(who, cmd))
}

// requireLogin returns an error if a login is required and the caller is anonymous or its login has
// ended. Commands from such callers do not enter the log.
func (n *node) requireLogin(ctx context.Context, who access.Caller) error {
	if who.User != "" {
		return nil
	}
	return n.confirmed(ctx, func(s *access.State) error { return s.CheckKnown(who) })
}

// confirmed runs check on users and roles that are at least as recent as the call, and returns the
// result. It returns nil if access control is disabled.
func (n *node) confirmed(ctx context.Context, check func(*access.State) error) error {
	if !n.View().Access.Enabled() {
		return nil
	}
	if err := n.Confirm(ctx); err != nil {
		return err
	}
	return check(n.View().Access)
}

// order is Propose for a command that is already wrapped in a By, or that this member issues
// itself.
func (n *node) order(ctx context.Context, cmd fsm.Command) (fsm.Result, error) {
	if err := n.admit(cmd); err != nil {
		return n.repeated(ctx, cmd, err)
	}
	res, err := n.ProposeOwn(ctx, cmd)
	n.countRefusal(res.Err)
	if err == nil && errors.Is(res.Err, fsm.ErrNoSpace) {
		n.raiseNoSpace(ctx)
	}
	if r, ok := fsm.Inner(cmd).(*fsm.RemoveMember); ok && r.ID == n.member && n.isExpelled() {
		// The entry no longer reaches this member. However, the rejection by other members shows
		// that this member has been removed.
		return fsm.Result{Revision: n.View().KV.Revision()}, nil
	}
	return res, err
}

// repeated returns the rejection of a command. If the command has an idempotency key and was
// applied before, it returns the earlier outcome instead, which takes no space in the log.
func (n *node) repeated(ctx context.Context, cmd fsm.Command, refusal error) (fsm.Result, error) {
	if !fsm.MayBeRepeated(cmd) {
		return fsm.Result{}, refusal
	}
	r := &replica.Repeat{Command: cmd}
	if err := n.readRepeat(ctx, r); err != nil {
		return fsm.Result{}, err
	}
	return outcomeOf(r, refusal)
}

func (n *node) readRepeat(ctx context.Context, r *replica.Repeat) error {
	c := n.newCall()
	c.read = replica.Read{Repeat: r, Owner: c}
	return n.read(ctx, c)
}

// outcomeOf returns the earlier outcome of a rejected command or, if it has not been applied
// before, the rejection.
func outcomeOf(r *replica.Repeat, refusal error) (fsm.Result, error) {
	if !r.Done {
		return fsm.Result{}, refusal
	}
	return r.Result, nil
}

func (n *node) isExpelled() bool {
	select {
	case <-n.expelled:
		return true
	default:
		return false
	}
}

// ProposeOwn implements authn.Member. It proposes a command without checking the caller or any
// limits.
func (n *node) ProposeOwn(ctx context.Context, cmd fsm.Command) (fsm.Result, error) {
	c := n.newCall()
	c.proposal = replica.Proposal{Command: cmd, Owner: c}
	c.stages = n.tracer.Ask(ctx)
	c.proposal.Trace = c.stages.Trace()
	err := n.inbox.ask(func(m *mail) int { return len(m.Proposals) + 1 },
		func(m *mail) { m.Proposals = append(m.Proposals, &c.proposal) })
	if err != nil {
		n.recycle(c)
		return fsm.Result{}, err
	}
	if err := n.wait(ctx, c); err != nil {
		return fsm.Result{}, err
	}
	defer n.recycle(c)
	return c.proposal.Result, c.proposal.Err
}

// Confirm implements etcd.Node.
func (n *node) Confirm(ctx context.Context) error { return n.Inspect(ctx, nil) }

// Inspect implements etcd.Node.
func (n *node) Inspect(ctx context.Context, f func(*lease.Lessor)) error {
	c := n.newCall()
	c.read = replica.Read{Inspect: f, Owner: c}
	return n.read(ctx, c)
}

// InspectLease implements etcd.Node.
func (n *node) InspectLease(
	ctx context.Context, id lease.ID, f func(*lease.Lessor, lease.TTL, bool),
) error {
	return n.InspectLeases(ctx, []lease.ID{id}, func(l *lease.Lessor, left []replica.Left) {
		f(l, left[0].TTL, left[0].Found)
	})
}

// read waits for the result of the read that c submitted.
func (n *node) read(ctx context.Context, c *call) error {
	c.stages = n.tracer.Ask(ctx)
	err := n.inbox.ask(func(m *mail) int { return len(m.Reads) + 1 },
		func(m *mail) { m.Reads = append(m.Reads, &c.read) })
	if err != nil {
		n.recycle(c)
		return err
	}
	if err := n.wait(ctx, c); err != nil {
		return err
	}
	defer n.recycle(c)
	return c.read.Err
}

// Renew implements etcd.Node.
func (n *node) Renew(id lease.ID, by *access.State, to api.Renewed) error {
	return n.inbox.ask(func(m *mail) int { return m.renewing + 1 }, func(m *mail) {
		m.renewing++
		m.Renewals = append(m.Renewals, replica.Renewal{ID: id, Access: by, Owner: to})
	})
}

// transferPoll is how often MoveLeader checks which member is the leader.
const transferPoll = 5 * time.Millisecond

// MoveLeader implements etcd.Node. It waits for the outcome, because Raft silently abandons a
// transfer after an election timeout.
func (n *node) MoveLeader(ctx context.Context, target uint64) error {
	begun := make(chan error, 1)
	if !n.inbox.task(func() { begun <- n.replica.Transfer(target) }) {
		return api.ErrStopped
	}
	select {
	case err := <-begun:
		if err != nil {
			return err
		}
	case <-n.stopped:
		return api.ErrStopped
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, api.ErrTimeout)
	defer cancel()
	for n.status.Load().Leader != target {
		if !backoff.Sleep(ctx, transferPoll) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Abandon implements etcd.Node.
func (n *node) Abandon(ids []lease.ID) {
	n.inbox.put(func(m *mail) {
		if len(m.Abandoned) < maxQueued {
			m.Abandoned = append(m.Abandoned, ids...)
		}
	})
}

// Watches implements api.Node.
func (n *node) Watches() *watch.Hub[*api.Event] { return n.hub }

// WaitQueues implements native.Node.
func (n *node) WaitQueues() *waitqueue.Queues { return n.waitQueues }

// Status implements etcd.Node.
func (n *node) Status() etcd.Status {
	s, usage, v := n.status.Load(), n.disk.Usage(), n.view.Load()
	out := etcd.Status{
		MemberID: n.member, ClusterID: n.cluster,
		Leader: s.Leader, Term: s.Term, Index: s.Index, Applied: s.Applied,
		// The whole state is in memory, but parts of it might not be in the files on disk.
		DBSize: max(int64(usage.DiskBytes), v.Bytes.Sum()), DBSizeInUse: v.Bytes.Sum(),
		Quota:          v.Quota,
		StorageVersion: version.Semantic(n.storageVersion()), Learner: v.Learner(n.member),
	}
	if n.peers.CopyRefused(time.Now()) {
		out.Errors = append(out.Errors, cause.CopiedData.Report("another process with the identity of "+
			"this member was rejected: a copy of its data directory is in use"))
	}
	if n.writer.full.Load() {
		out.Errors = append(out.Errors,
			cause.DiskFull.Report(diskFull))
	}
	if n.keeper != nil && s.Primary {
		if why := n.keeper.Failing(); why != "" {
			out.Errors = append(out.Errors, cause.BackupsFail.Report(why))
		}
	}
	return out
}

// Alarms implements etcd.Node.
func (n *node) Alarms() []fsm.Alarm {
	alarms := n.View().Alarms
	own := fsm.Alarm{Member: n.member, Kind: fsm.NoSpace}
	if n.writer.full.Load() && !slices.Contains(alarms, own) {
		return append(slices.Clip(alarms), own)
	}
	return alarms
}

// SnapshotTo implements etcd.Node. Its output can be restored with "leasehold snapshot restore".
func (n *node) SnapshotTo(ctx context.Context, w io.Writer) error {
	image, err := n.image(ctx)
	if err != nil {
		return err
	}
	return backup.Write(ctx, w, n.cluster, image.Encode)
}

// Defragment implements etcd.Node. It does nothing, because the state is in memory and each
// snapshot is written as a whole. Only compaction frees space.
func (n *node) Defragment(context.Context) error { return nil }
