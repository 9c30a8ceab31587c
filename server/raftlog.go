package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
)

// raftLogger forwards the log of the Raft library. The library's info level is useful only for
// debugging the library.
type raftLogger struct{ log *slog.Logger }

var _ raft.Logger = raftLogger{}

func raftText(v ...any) string { return "raft: " + fmt.Sprint(v...) }

func raftTextf(format string, v ...any) string { return "raft: " + fmt.Sprintf(format, v...) }

// warn logs a warning. A restarted member must apply entries before it can campaign. The warning
// about that is logged at debug level.
func (l raftLogger) warn(text string) {
	level := slog.LevelWarn
	if strings.Contains(text, "pending configuration changes") {
		level = slog.LevelDebug
	}
	l.write(level, text)
}

// write logs with the source position of the library's call, two frames up, so that each position
// has its own rate limit.
func (l raftLogger) write(level slog.Level, text string) {
	ctx := context.Background()
	if !l.log.Enabled(ctx, level) {
		return
	}
	var at [1]uintptr
	runtime.Callers(4, at[:])
	_ = l.log.Handler().Handle(ctx, slog.NewRecord(time.Now(), level, text, at[0]))
}

func (l raftLogger) fail(text string) { l.write(slog.LevelError, text) }

// Methods of raft.Logger.

func (l raftLogger) Debug(v ...any)              { l.log.Debug(raftText(v...)) }
func (l raftLogger) Debugf(f string, v ...any)   { l.log.Debug(raftTextf(f, v...)) }
func (l raftLogger) Info(v ...any)               { l.log.Debug(raftText(v...)) }
func (l raftLogger) Infof(f string, v ...any)    { l.log.Debug(raftTextf(f, v...)) }
func (l raftLogger) Warning(v ...any)            { l.warn(raftText(v...)) }
func (l raftLogger) Warningf(f string, v ...any) { l.warn(raftTextf(f, v...)) }
func (l raftLogger) Error(v ...any)              { l.fail(raftText(v...)) }
func (l raftLogger) Errorf(f string, v ...any)   { l.fail(raftTextf(f, v...)) }
func (l raftLogger) Fatal(v ...any)              { panic(raftText(v...)) }
func (l raftLogger) Fatalf(f string, v ...any)   { panic(raftTextf(f, v...)) }
func (l raftLogger) Panic(v ...any)              { panic(raftText(v...)) }
func (l raftLogger) Panicf(f string, v ...any)   { panic(raftTextf(f, v...)) }
