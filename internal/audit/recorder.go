package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/login"
)

// Member is the member whose calls and leases are recorded.
type Member interface {
	View() *fsm.View
	// OnLeaseNews registers f to be called each time the view has received new lease events.
	// Calling stop unregisters f.
	OnLeaseNews(f func()) (stop func())
}

// Recorder records calls and lease events. A nil Recorder records nothing.
type Recorder struct {
	log    *Log
	level  level
	member Member
	logger *slog.Logger
}

// NewRecorder opens the audit log of a member. It returns nil if o does not name a file.
func NewRecorder(o Options, of Member, logger *slog.Logger) (*Recorder, error) {
	if o.File == "" {
		return nil, nil
	}
	log, err := Open(o)
	if err != nil {
		return nil, fmt.Errorf("--audit-log: %w", err)
	}
	return &Recorder{log, level(slices.Index(Levels, o.Level)), of, logger}, nil
}

// Collectors returns the log's metrics.
func (a *Recorder) Collectors() []prometheus.Collector {
	if a == nil {
		return nil
	}
	return a.log.Collectors()
}

// entries is a pool of records for calls that have a single request.
var entries = sync.Pool{New: func() any { return new(Entry) }}

// errNoAudit is returned for a call that cannot be recorded. It also replaces the response if
// recording fails after the call.
var errNoAudit = status.Error(codes.Unavailable,
	"leasehold: this member cannot write its audit log, and --audit-log-when-full is stop")

// Unary is a grpc.UnaryServerInterceptor. It must run after authentication, which identifies the
// caller. For calls that authentication rejects, Refused is called instead.
func (a *Recorder) Unary(
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
	e := entries.Get().(*Entry)
	defer func() { e.Reset(); entries.Put(e) }()
	fill(e, req)
	e.Call, e.Principal = Text(info.FullMethod), principalOf(ctx)
	if r, ok := req.(*pb.AuthenticateRequest); ok {
		e.Principal, e.Target = Text(r.Name), ""
	}
	e.Revision, e.Address, e.Trace = revisionOf(resp), addressOf(ctx), traceOf(ctx)
	if a.record(e, err) != nil {
		return nil, errNoAudit
	}
	return resp, err
}

// Refused records a call that authentication rejected with err. It returns the error to send to the
// client. For a stream, req is nil.
func (a *Recorder) Refused(ctx context.Context, req any, method string, err error) error {
	if a == nil {
		return err
	}
	e := entryOf(req)
	e.Call, e.Address, e.Trace = Text(method), addressOf(ctx), traceOf(ctx)
	if a.record(e, err) != nil {
		return errNoAudit
	}
	return err
}

// record writes an entry for a call that ended with err.
func (a *Recorder) record(e *Entry, err error) error {
	e.Time, e.Event, e.Outcome = time.Now(), "call", OK
	if err != nil {
		e.Outcome, e.Error = Failed, Text(status.Convert(err).Message())
		if isDenied(err) {
			e.Outcome = Denied
		}
	}
	return a.log.Record(e)
}

// principalOf returns the caller's principal, or "" if the caller is anonymous.
func principalOf(ctx context.Context) Text { return Text(api.CallerOf(ctx).User) }

// addressOf returns where a call comes from.
func addressOf(ctx context.Context) Text { return Text(api.Address(ctx)) }

// traceOf returns the trace ID in a call's headers (W3C Trace Context), or "".
func traceOf(ctx context.Context) Text {
	parent := metadata.ValueFromIncomingContext(ctx, "traceparent") // avoids copying all headers
	if len(parent) != 1 {
		return ""
	}
	carrier := propagation.MapCarrier{"traceparent": parent[0]}
	c := trace.SpanContextFromContext(
		propagation.TraceContext{}.Extract(context.Background(), carrier))
	if !c.IsValid() {
		return ""
	}
	return Text(c.TraceID().String())
}

// refusals are the etcd API errors that report a missing permission but share their code with other
// errors.
var refusals = map[string]bool{
	rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):                 true,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed):                true,
	status.Convert(api.Error(login.ErrTooManyFailures)).Message(): true,
}

// isDenied reports whether a call failed because the caller is not allowed to make it.
func isDenied(err error) bool {
	if err == nil {
		return false
	}
	s := status.Convert(err)
	return s.Code() == codes.PermissionDenied || s.Code() == codes.Unauthenticated ||
		refusals[s.Message()]
}

// Run writes records in batches until ctx ends. It also records lease events with numbers above at.
func (a *Recorder) Run(ctx context.Context, at uint64) {
	done := make(chan struct{})
	go func() { defer close(done); a.followLeases(ctx, at) }()
	a.log.Run(ctx, func(err error) {
		a.logger.Error("dropping audit records; see leasehold_audit_dropped_total",
			"error", err)
	})
	<-done
}

// followLeases records lease events with numbers above at until ctx ends. When the member starts,
// the events since the last snapshot are repeated with the same numbers.
func (a *Recorder) followLeases(ctx context.Context, at uint64) {
	news := make(chan struct{}, 1)
	stop := a.member.OnLeaseNews(func() {
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

// recordLeases records lease events with numbers above at, and returns the number of the last one.
func (a *Recorder) recordLeases(at uint64) uint64 {
	all := a.member.View().LeaseEvents
	for at < all.Last() {
		events, err := all.After(at)
		if errors.Is(err, fsm.ErrEventsCompacted) || len(events) == 0 {
			_ = a.log.Record(&Entry{ // the log counts what it cannot write
				Time: time.Now(), Event: "lease events lost", Seq: all.Last(),
				Detail: "they arrived in a snapshot, or there were too many at once",
			})
			return all.Last()
		}
		for i := range events {
			e := &events[i]
			_ = a.log.Record(&Entry{
				Time: time.Now(), Event: "lease " + e.Kind.String(), Seq: e.Seq,
				Lease: int64(e.Info.ID), Name: Text(e.Info.Name),
				Principal: Text(e.Info.Principal), Owner: Text(e.Info.Owner),
				Detail: Text(e.By), Revision: e.Revision,
			})
		}
		at = events[len(events)-1].Seq
	}
	return at
}

// Close writes the remaining records. It must be called after the last call.
func (a *Recorder) Close() {
	if err := a.log.Close(); err != nil {
		a.logger.Error("the last records of the audit log were lost", "error", err)
	}
}
