package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/storage"
	"leasehold.dev/server"
)

// stuckPipe is a standard error stream that blocks writes until it is released.
type stuckPipe struct {
	released chan struct{}
	text     bytes.Buffer
}

func (p *stuckPipe) Write(b []byte) (int, error) {
	<-p.released
	return p.text.Write(b)
}

// TestLogNotRead checks that logging never blocks when nothing reads the log, and that dropped
// lines are reported (T43).
func TestLogNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := &stuckPipe{released: make(chan struct{})}
		lg, err := logFlags{level: "debug", format: "json"}.open(nil, pipe)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("x", 1000)
		began := time.Now()
		for range 4000 {
			lg.Debug("line", "text", text)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("logging took %v", took)
		}
		close(pipe.released)
		lg.flush()
		if err := lg.close(); err != nil {
			t.Error(err)
		}
		if got := pipe.text.String(); !strings.Contains(got, "log lines were dropped") {
			t.Errorf("the log does not tell what is missing: %d bytes", len(got))
		}
	})
}

// TestFatalEndIsOneLine checks that a fatal error is logged as one JSON line with its cause. If the
// log goes only to a file, the command prints the error as well.
func TestFatalEndIsOneLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for output, wantReported := range map[string]bool{"stderr": true, file: false} {
		why := server.DefaultConfig().NotStarted(fmt.Errorf("open: %w", storage.ErrCorrupt))
		c := command(process{
			env: func() []string { return nil }, hostname: func() string { return "h" },
			run: func(context.Context, server.Config, *joiner, *reloader) error { return why },
		})
		var stderr bytes.Buffer
		c.SetErr(&stderr)
		c.SetArgs([]string{"--data-dir", t.TempDir(), "--log-outputs", output})
		err := c.Execute()
		var reported interface{ Reported() bool }
		if got := errors.As(err, &reported) && reported.Reported(); got != wantReported ||
			!errors.Is(err, why) {
			t.Errorf("%s: %v, reported: %t", output, err, got)
		}
		text := stderr.Bytes()
		if output == file {
			text, _ = os.ReadFile(file)
		}
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		var last struct{ Level, Cause, Error string }
		if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || last.Level != "error" ||
			last.Cause != "DAMAGED" || last.Error != why.Error() {
			t.Errorf("%s: %v: %s", output, err, text)
		}
	}
}
