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

// logger returns what etcd's client library logs to. Its warnings are of calls that failed:
// the command tells of those itself, so without --debug nothing is printed. Kept is only why no
// connection was made, which the error of a call that ran out of time does not say.
func (a *App) logger(why *DialError) (*zap.Logger, error) {
	if a.Flags.debug {
		return logutil.CreateDefaultZapLogger(zap.InfoLevel)
	}
	return zap.New(why), nil
}

// DialError remembers why a connection could not be made: the last reason that was logged. It
// implements zapcore.Core. Of the last call that failed it has the code of the cause, which the
// library leaves out when it tries again until the time is up.
type DialError struct {
	mu   sync.Mutex
	text string
	code cause.Code
}

// Cause returns the code of what was told last, empty if there was none.
func (d *DialError) Cause() cause.Code {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.code
}

// watch makes a client tell how each call of one answer ends.
func (d *DialError) watch() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		next grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := next(ctx, method, req, reply, cc, opts...)
		if s := grpcstatus.Code(err); s == codes.DeadlineExceeded || s == codes.Canceled {
			return err // nobody has answered
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.code = causeIn(err)
		return err
	})
}

// causeIn returns the code that a refusal has for its cause.
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

// String returns the reason, empty if there is none.
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

// learn takes what gRPC says of a call that failed.
func (d *DialError) learn(text string) {
	why, found := DialErrorIn(text)
	if !found {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = why
}

// DialErrorIn finds in what gRPC says of a call why there was no connection.
func DialErrorIn(text string) (why string, found bool) {
	// A member has said why it did not answer; etcd's library asks again until the time is up.
	const late = "request timed out, "
	if _, why, found = strings.Cut(text, late); found {
		return strings.TrimSuffix(why, ")"), true // where it is in brackets behind what was tried
	}
	const mark = `connection error: desc = "`
	_, why, found = strings.Cut(text, mark)
	why = strings.TrimSuffix(why, `"`)
	why = strings.TrimPrefix(why, "transport: ")
	why = strings.TrimPrefix(why, "Error while dialing: ")
	return why + fault.TLSHint(why), found
}
