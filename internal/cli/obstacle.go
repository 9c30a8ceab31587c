package cli

import (
	"strings"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger returns what etcd's client library logs to. Its warnings are of calls that failed:
// the command tells of those itself, so without --debug nothing is printed but, at the end,
// why no connection was made, which the error of a call that ran out of time does not say.
func (a *app) logger() (*zap.Logger, error) {
	if a.flags.debug {
		return logutil.CreateDefaultZapLogger(zap.InfoLevel)
	}
	return zap.New(&a.obstacle), nil
}

// obstacle remembers why a connection could not be made: the last reason that was logged. It
// implements zapcore.Core.
type obstacle struct {
	mu   sync.Mutex
	text string
}

// String returns the reason, empty if there is none.
func (o *obstacle) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text
}

// Enabled implements zapcore.LevelEnabler.
func (o *obstacle) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (o *obstacle) With([]zapcore.Field) zapcore.Core { return o }

// Check implements zapcore.Core.
func (o *obstacle) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if o.Enabled(e.Level) {
		return to.AddCore(e, o)
	}
	return to
}

// Write implements zapcore.Core.
func (o *obstacle) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			o.learn(err.Error())
		}
	}
	return nil
}

// Sync implements zapcore.Core.
func (o *obstacle) Sync() error { return nil }

// learn takes what gRPC says of a call that failed.
func (o *obstacle) learn(text string) {
	why, found := obstacleIn(text)
	if !found {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = why
}

// obstacleIn finds in what gRPC says of a call why there was no connection.
func obstacleIn(text string) (why string, found bool) {
	// A member has said why it did not answer; etcd's library asks again until the time is up.
	const late = "request timed out, "
	if _, why, found = strings.Cut(text, late); found {
		return strings.TrimSuffix(why, ")"), true // where it is in brackets behind what was tried
	}
	const mark = `connection error: desc = "`
	_, why, found = strings.Cut(text, mark)
	why = strings.TrimSuffix(why, `"`)
	why = strings.TrimPrefix(why, "transport: ")
	if strings.Contains(why, "looked like an HTTP/1.1 header") {
		why += " (perhaps the port speaks TLS: use https://)" // our members say so in HTTP/1.1
	}
	return strings.TrimPrefix(why, "Error while dialing: "), found
}
