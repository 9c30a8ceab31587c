package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/logger"
)

// logFlags holds the outputs, the format and the level of the log.
type logFlags struct {
	level, format string
	outputs       []string
}

// levels maps etcd's level names. The three levels at which etcd ends the process are treated as
// errors.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn,
	"error": slog.LevelError, "dpanic": slog.LevelError,
	"panic": slog.LevelError, "fatal": slog.LevelError,
}

// logStyle contains the log settings that can be changed at run time.
type logStyle struct {
	level   slog.LevelVar
	console atomic.Bool // otherwise JSON
}

// check returns an error for an unknown level or format.
func (l logFlags) check() error {
	if _, ok := levels[strings.ToLower(l.level)]; !ok {
		return usageError("invalid value %q for --log-level: it must be debug, "+
			"info, warn or error", l.level)
	}
	if l.format != "json" && l.format != "console" {
		return usageError("invalid value %q for --log-format: it must be json or "+
			"console", l.format)
	}
	return nil
}

// apply sets s from the flags, which must be valid.
func (l logFlags) apply(s *logStyle) {
	s.level.Set(levels[strings.ToLower(l.level)])
	s.console.Store(l.format == "console")
}

// processLog is the log of a process. Logging never waits for a reader of the log.
type processLog struct {
	*slog.Logger
	style  *logStyle
	queues []*logger.Queue // one per output
	files  []*os.File
	limit  logger.Limit
	shown  bool // whether the log goes to standard output or standard error
}

// flushTime is how long an exiting process waits for its log to be read.
const flushTime = time.Second

// open opens the log.
func (l logFlags) open(stdout, stderr io.Writer) (*processLog, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	p := &processLog{style: new(logStyle)}
	l.apply(p.style)
	w, err := l.writer(p, stdout, stderr)
	if err != nil {
		return nil, fault.Join(err, p.close())
	}
	w = &serialWriter{w: w}
	p.limit = logger.NewLimit(logHandler{
		style:   p.style,
		console: slog.NewTextHandler(w, &slog.HandlerOptions{Level: &p.style.level}),
		json: slog.NewJSONHandler(w, &slog.HandlerOptions{
			Level: &p.style.level, ReplaceAttr: etcdAttr,
		}),
	}, p.flush)
	p.Logger = slog.New(p.limit)
	return p, nil
}

// fatal logs the error that ends the process, together with its cause, in one line. If the log goes
// to the terminal, the returned error is not printed again.
func (p *processLog) fatal(err error) error {
	if err == nil {
		return nil
	}
	code := string(cause.Failed)
	var caused interface{ Cause() string }
	if errors.As(err, &caused) {
		code = caused.Cause()
	}
	p.Error("exiting with an error", "cause", code, "error", err.Error())
	if p.shown {
		return loggedError{err}
	}
	return err
}

// loggedError is an error that has already been logged to the terminal, so the command line does
// not print it.
type loggedError struct{ error }

// Unwrap returns the error itself.
func (e loggedError) Unwrap() error { return e.error }

// Reported marks the error as already shown to the user, for the command line.
func (loggedError) Reported() bool { return true }

// flush waits up to flushTime for the log to be read.
func (p *processLog) flush() {
	for _, q := range p.queues {
		q.Flush(flushTime)
	}
}

// collectors returns the metrics of the log.
func (p *processLog) collectors() []prometheus.Collector {
	return logger.Collectors(func() (lines uint64) {
		for _, q := range p.queues {
			lines += q.Dropped()
		}
		return lines
	}, p.limit.Dropped)
}

// close waits up to flushTime for the log to be read, and closes it.
func (p *processLog) close() error {
	var err error
	for _, q := range p.queues {
		q.Close(flushTime)
	}
	for _, f := range p.files {
		err = fault.Join(err, f.Close())
	}
	return err
}

// logHandler writes each record in the current format of style.
type logHandler struct {
	style         *logStyle
	console, json slog.Handler
}

// Enabled implements slog.Handler.
func (h logHandler) Enabled(_ context.Context, l slog.Level) bool {
	return l >= h.style.level.Level()
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.style.console.Load() {
		return h.console.Handle(ctx, r)
	}
	return h.json.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.console, h.json = h.console.WithAttrs(attrs), h.json.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	h.console, h.json = h.console.WithGroup(name), h.json.WithGroup(name)
	return h
}

// serialWriter serializes writes by the two handlers, because each handler has its own lock.
type serialWriter struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

// Write implements io.Writer.
func (o *serialWriter) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

// writer opens the outputs.
func (l logFlags) writer(p *processLog, stdout, stderr io.Writer) (io.Writer, error) {
	outputs := l.outputs
	if len(outputs) == 0 {
		outputs = []string{"stderr"}
	}
	var all []io.Writer
	for _, out := range outputs {
		var to io.Writer
		switch out {
		case "stdout":
			to, p.shown = stdout, true
		case "stderr", "default", "systemd/journal":
			// Under systemd, standard error is sent to the journal.
			to, p.shown = stderr, true
		default:
			f, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, fmt.Errorf("--log-outputs: %w", err)
			}
			p.files = append(p.files, f)
			to = f
		}
		q := logger.NewQueue(to, func(lines uint64) {
			p.Warn("log lines were dropped because they were not read in time",
				"dropped", lines, "output", out)
		})
		p.queues = append(p.queues, q)
		all = append(all, q)
	}
	return io.MultiWriter(all...), nil
}

// etcdAttr gives a record's standard fields the same names and format as etcd, so that tools for
// etcd's log can read ours.
func etcdAttr(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration { // slog would write nanoseconds
		return slog.String(a.Key, a.Value.Duration().String())
	}
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		if t, ok := a.Value.Any().(time.Time); ok {
			return slog.String("ts", t.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
		}
	case slog.LevelKey:
		if l, ok := a.Value.Any().(slog.Level); ok {
			return slog.String(slog.LevelKey, strings.ToLower(l.String()))
		}
	}
	return a
}

// warnAll logs each line as a warning.
func warnAll(lg *slog.Logger, lines []string) {
	for _, line := range lines {
		lg.LogAttrs(context.Background(), slog.LevelWarn, line)
	}
}
