package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/audit"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/login"
)

// auditor writes calls and events of leases into the audit log.
type auditor struct {
	log   *audit.Log
	level auditLevel
	node  *node
}

// newAuditor returns nil if there is to be no audit log.
func newAuditor(cfg Config, n *node) (*auditor, error) {
	c := cfg.Access.Audit
	if c.File == "" {
		return nil, nil
	}
	log, err := audit.Open(c)
	if err != nil {
		return nil, fmt.Errorf("%w: --audit-log: %w", ErrConfig, err)
	}
	n.metrics.Registry.MustRegister(log.Collectors()...)
	return &auditor{log: log, level: auditLevel(slices.Index(audit.Levels, c.Level)), node: n}, nil
}

// entries are for the records of calls that have one request.
var entries = sync.Pool{New: func() any { return new(audit.Entry) }}

// errNoAudit refuses what could not be recorded, and withholds the answer of what could not.
var errNoAudit = status.Error(codes.Unavailable,
	"leasehold: the audit log of this member cannot be written, and --audit-log-when-full is stop")

// unary is a grpc.UnaryServerInterceptor. It comes after the logins, which say who calls, and tell
// refused of a call that they do not let in.
func (a *auditor) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	recorded := levelOf(req) <= a.level
	if recorded && a.log.Ready() != nil {
		return nil, errNoAudit
	}
	resp, err := next(ctx, req)
	if !recorded && !isDenied(err) {
		return resp, err
	}
	e := entries.Get().(*audit.Entry)
	defer func() { e.Reset(); entries.Put(e) }()
	fill(e, req)
	e.Call, e.Principal = audit.Text(info.FullMethod), principalOf(ctx)
	if r, ok := req.(*pb.AuthenticateRequest); ok {
		e.Principal, e.Target = audit.Text(r.Name), ""
	}
	e.Revision, e.Address, e.Trace = revisionOf(resp), addressOf(ctx), traceOf(ctx)
	if a.record(e, err) != nil {
		return nil, errNoAudit
	}
	return resp, err
}

// refused records a call that the logins have not let in, because of err. It returns the error to
// answer with. There is no req of a stream. A nil auditor records nothing.
func (a *auditor) refused(ctx context.Context, req any, method string, err error) error {
	if a == nil {
		return err
	}
	e := entryOf(req)
	e.Call, e.Address, e.Trace = audit.Text(method), addressOf(ctx), traceOf(ctx)
	if a.record(e, err) != nil {
		return errNoAudit
	}
	return err
}

// record writes an entry about a call that ended with err.
func (a *auditor) record(e *audit.Entry, err error) error {
	e.Time, e.Event, e.Outcome = time.Now(), "call", audit.OK
	if err != nil {
		e.Outcome, e.Error = audit.Failed, audit.Text(status.Convert(err).Message())
		if isDenied(err) {
			e.Outcome = audit.Denied
		}
	}
	return a.log.Record(e)
}

// principalOf returns the name of who makes a call, empty for nobody.
func principalOf(ctx context.Context) audit.Text { return audit.Text(api.CallerOf(ctx).User) }

// addressOf returns where a call comes from.
func addressOf(ctx context.Context) audit.Text { return audit.Text(api.Address(ctx)) }

// traceOf returns the ID of the trace that a call says that it is part of, "" for none.
func traceOf(ctx context.Context) audit.Text {
	return audit.Text(traceIDOf(ctx))
}

// refusals are errors of etcd's that say that somebody may not do something, with codes that others
// have, too.
var refusals = map[string]bool{
	rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):                 true,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed):                true,
	status.Convert(api.Error(login.ErrTooManyFailures)).Message(): true,
}

// isDenied reports whether a call ended because of who made it.
func isDenied(err error) bool {
	if err == nil {
		return false
	}
	s := status.Convert(err)
	return s.Code() == codes.PermissionDenied || s.Code() == codes.Unauthenticated ||
		refusals[s.Message()]
}

// run writes records together, and records the events of leases after a number, until ctx ends.
func (a *auditor) run(ctx context.Context, at uint64, log *slog.Logger) {
	done := make(chan struct{})
	go func() { defer close(done); a.followLeases(ctx, at) }()
	a.log.Run(ctx, func(err error) {
		log.Error("dropping records of the audit log; see leasehold_audit_dropped_total",
			"error", err)
	})
	<-done
}

// followLeases records the events of leases after a number until ctx ends. After a start those
// since the last snapshot come again, with the numbers that they had.
func (a *auditor) followLeases(ctx context.Context, at uint64) {
	news := make(chan struct{}, 1)
	stop := a.node.OnLeaseNews(func() {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	defer stop()
	for ctx.Err() == nil {
		at = a.recordLeases(at)
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	a.recordLeases(at)
}

// recordLeases records the events after a number, and returns that of the last one.
func (a *auditor) recordLeases(at uint64) uint64 {
	all := a.node.View().LeaseEvents
	for at < all.Last() {
		events, err := all.After(at)
		if errors.Is(err, fsm.ErrEventsCompacted) || len(events) == 0 {
			_ = a.log.Record(&audit.Entry{ // it counts what it cannot write
				Time: time.Now(), Event: "lease events lost", Seq: all.Last(),
				Detail: "a snapshot brought them, or there were too many at a time",
			})
			return all.Last()
		}
		for i := range events {
			e := &events[i]
			_ = a.log.Record(&audit.Entry{
				Time: time.Now(), Event: "lease " + leaseWords[e.Kind], Seq: e.Seq,
				Lease: int64(e.Info.ID), Name: audit.Text(e.Info.Name),
				Principal: audit.Text(e.Info.Principal), Owner: audit.Text(e.Info.Owner),
				Detail: audit.Text(e.By), Revision: e.Revision,
			})
		}
		at = events[len(events)-1].Seq
	}
	return at
}

// close writes what is left, after the last call.
func (a *auditor) close() {
	if err := a.log.Close(); err != nil {
		a.node.log.Error("the last records of the audit log are lost", "error", err)
	}
}
