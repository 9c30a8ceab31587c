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

// TestLimitEachPlace checks that repeated lines are limited separately for each place in the code,
// and that the next line from there states how many were dropped. Debug lines are not limited,
// because they were requested.
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

// TestLongTexts checks that text of any type is truncated, since a stranger may have chosen it.
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

// TestLongTextsOfLogger checks that texts passed to With are limited as well. The limit for errors
// is higher, because an error can contain a stack trace.
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

// TestLimitWithoutPlace checks records without a source location. Each type of message has its own
// rate limit, up to a maximum number of types. Any others, which a stranger could make up, share a
// single limit.
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
