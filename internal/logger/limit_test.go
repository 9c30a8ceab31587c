package logger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What repeats is limited for each place in the code, and the next line of it tells how many are
// missing. Debug lines, which are asked for, are not limited.
func TestLimitEachPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		limit := NewLimit(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), nil)
		log := slog.New(limit).With("name", "a")
		repeat := func(n int) {
			for range n {
				log.Warn("again")
			}
		}
		repeat(burst + 7)
		log.Warn("another")
		for range 2 * burst {
			log.Debug("detail")
		}
		if got := strings.Count(out.String(), "again"); got != burst {
			t.Errorf("%d lines at once", got)
		}
		if !strings.Contains(out.String(), "another") {
			t.Error("another place is limited, too")
		}
		if got := strings.Count(out.String(), "detail"); got != 2*burst {
			t.Errorf("%d debug lines", got)
		}
		time.Sleep(time.Second)
		repeat(3)
		if got := strings.Count(out.String(), "again"); got != burst+perSecond {
			t.Errorf("%d lines after a second", got)
		}
		if !strings.Contains(out.String(), "suppressed=7") || limit.Dropped() != 9 {
			t.Errorf("%d suppressed: %s", limit.Dropped(), out.String())
		}
	})
}

// A text that a stranger chose is bounded, whatever its type.
func TestLongTexts(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(NewLimit(slog.NewJSONHandler(&out, nil), nil))
	long := strings.Repeat("ü", maxText)
	log.Warn(long, "text", long, "error", errors.New(long), "list", []string{long, long},
		"number", 7, "short", "x", slog.Group("group", "text", long, slog.Group("in", "text", long)),
		"bytes", []byte(long), "fields", struct{ A, B string }{long, long})
	if out.Len() > 9*maxText {
		t.Errorf("%d bytes", out.Len())
	}
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(line["text"].(string), "... (1024 bytes more)") || line["short"] != "x" ||
		line["number"] != 7.0 {
		t.Errorf("%v", line)
	}
}

// Texts of With are bounded as well, and those of errors less, since a stack trace is one.
func TestLongTextsOfLogger(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(NewLimit(slog.NewJSONHandler(&out, nil), nil))
	long := strings.Repeat("x", maxErrorText+1)
	log.With("text", long).WithGroup("g").With(slog.Group("in", "text", long)).Warn("w")
	if out.Len() > 3*maxText {
		t.Errorf("%d bytes", out.Len())
	}
	out.Reset()
	log.Error("e", "stack", long[:maxErrorText])
	log.Error("e", "stack", long)
	if !strings.Contains(out.String(), long[:maxErrorText]+`"}`) ||
		!strings.Contains(out.String(), long[:maxErrorText]+"... (1 bytes more)") {
		t.Errorf("%d bytes", out.Len())
	}
}

// Records that do not say where they come from have a rate for each kind of message, and what a
// stranger makes up has one together.
func TestLimitWithoutPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		limit := NewLimit(slog.NewTextHandler(&out, nil), nil)
		log := func(message string) {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, message, 0)
			if err := limit.Handle(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
		for i := range 2 * burst {
			log(fmt.Sprint("read from peer ", i))
			log(fmt.Sprint("write to peer ", i))
		}
		if n := strings.Count(out.String(), "\n"); n != 2*burst {
			t.Errorf("%d lines of two kinds", n)
		}
		out.Reset()
		for i := range 10 * maxMessages {
			log(fmt.Sprint(i))
		}
		if n := strings.Count(out.String(), "\n"); n != maxMessages-2+burst {
			t.Errorf("%d lines of many kinds", n)
		}
	})
}
