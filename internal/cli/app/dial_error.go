package app

import (
	"context"
	"strings"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/fault"
)

// logger returns the logger for etcd's client library. The library logs a warning for each failed
// call. The command reports those errors itself, so nothing is printed without --debug. Only the
// reason for a failed connection is kept, because the error from a timed-out call does not contain
// it.
func (a *App) logger(why *DialError) (*zap.Logger, error) {
	if a.Flags.debug {
		return logutil.CreateDefaultZapLogger(zap.InfoLevel)
	}
	return zap.New(why), nil
}

// DialError records why a connection could not be made. It implements zapcore.Core, and keeps the
// last reason found in the log. It also keeps the cause code of the last failed call, because the
// library drops that code when it retries until the timeout.
type DialError struct {
	mu   sync.Mutex
	text string
	code cause.Code
}

// Cause returns the latest cause code, or "".
func (d *DialError) Cause() cause.Code {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.code
}

// watch returns an option that records the result of each unary call of a client.
func (d *DialError) watch() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		next grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := next(ctx, method, req, reply, cc, opts...)
		if s := grpcstatus.Code(err); s == codes.DeadlineExceeded || s == codes.Canceled {
			return err // no response was received
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.code = causeIn(err)
		return err
	})
}

// causeIn returns the cause code in an error.
func causeIn(err error) cause.Code {
	s := grpcstatus.Convert(err)
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == cause.Domain {
			return cause.Code(info.Metadata[cause.Key])
		}
	}
	if s.Code() == codes.Unimplemented {
		return cause.NotAMember
	}
	return ""
}

// String returns the reason, or "".
func (d *DialError) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text
}

// Enabled implements zapcore.LevelEnabler.
func (d *DialError) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (d *DialError) With([]zapcore.Field) zapcore.Core { return d }

// Check implements zapcore.Core.
func (d *DialError) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if d.Enabled(e.Level) {
		return to.AddCore(e, d)
	}
	return to
}

// Write implements zapcore.Core.
func (d *DialError) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			d.learn(err.Error())
		}
	}
	return nil
}

// Sync implements zapcore.Core.
func (d *DialError) Sync() error { return nil }

// learn extracts the reason from gRPC's error text.
func (d *DialError) learn(text string) {
	why, found := DialErrorIn(text)
	if !found {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = why
}

// DialErrorIn extracts the reason for a failed connection from a gRPC error text.
func DialErrorIn(text string) (why string, found bool) {
	// The member sent the reason, but etcd's library kept retrying until the timeout.
	const late = "request timed out, "
	if _, why, found = strings.Cut(text, late); found {
		return strings.TrimSuffix(why, ")"), true // in parentheses, after the attempt
	}
	const mark = `connection error: desc = "`
	_, why, found = strings.Cut(text, mark)
	why = strings.TrimSuffix(why, `"`)
	why = strings.TrimPrefix(why, "transport: ")
	why = strings.TrimPrefix(why, "Error while dialing: ")
	return why + fault.TLSHint(why), found
}
