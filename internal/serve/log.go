package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"leasehold.dev/internal/fault"
)

// logFlags says where the log goes, and in which form.
type logFlags struct {
	level, format string
	outputs       []string
}

// levels are etcd's names. The three that end a process there are as rare as
// errors, and are errors.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn,
	"error": slog.LevelError, "dpanic": slog.LevelError,
	"panic": slog.LevelError, "fatal": slog.LevelError,
}

// open returns the logger, and what closes its files.
func (l logFlags) open(stdout, stderr io.Writer) (*slog.Logger, func() error, error) {
	level, ok := levels[strings.ToLower(l.level)]
	if !ok {
		return nil, nil, usageError("invalid value %q for --log-level: it is not one of debug, "+
			"info, warn, error", l.level)
	}
	if l.format != "json" && l.format != "console" {
		return nil, nil, usageError("invalid value %q for --log-format: it is not one of json, "+
			"console", l.format)
	}
	w, closeFiles, err := l.writer(stdout, stderr)
	if err != nil {
		return nil, nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if l.format == "console" {
		return slog.New(slog.NewTextHandler(w, options)), closeFiles, nil
	}
	options.ReplaceAttr = likeEtcd
	return slog.New(slog.NewJSONHandler(w, options)), closeFiles, nil
}

func (l logFlags) writer(stdout, stderr io.Writer) (io.Writer, func() error, error) {
	var to []io.Writer
	var files []*os.File
	closeFiles := func() error {
		var err error
		for _, f := range files {
			err = fault.Join(err, f.Close())
		}
		return err
	}
	for _, out := range l.outputs {
		switch out {
		case "stdout":
			to = append(to, stdout)
		case "stderr", "default", "systemd/journal":
			// Under systemd the standard error goes to the journal.
			to = append(to, stderr)
		default:
			f, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, nil, fault.Join(fmt.Errorf("--log-outputs: %w", err), closeFiles())
			}
			files = append(files, f)
			to = append(to, f)
		}
	}
	if len(to) == 0 {
		to = append(to, stderr)
	}
	return io.MultiWriter(to...), closeFiles, nil
}

// likeEtcd names and writes a record's own fields as etcd does, so that what
// reads etcd's log reads ours.
func likeEtcd(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration { // which slog writes as a number of nanoseconds
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
