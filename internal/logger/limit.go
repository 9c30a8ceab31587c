package logger

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Each place in the program that logs may write so many lines at once, and then so many a second.
const (
	burst     = 20
	perSecond = 1
)

// maxText bounds each text of a record, in bytes: a stranger may have chosen it.
const maxText = 1 << 10

// suppressedKey is the key of how many lines from the same place are missing before a line.
const suppressedKey = "suppressed"

// Limit is a handler that limits how often each place in the program logs, and how long the texts
// are. Records below slog.LevelInfo, which only those get who ask for them, have no limit of rate.
type Limit struct {
	next  slog.Handler
	sites *sites
}

// sites are all places that have logged: no more than the program has.
type sites struct {
	counters sync.Map // program counters, uintptr to *site; an inlined line has several
	lines    sync.Map // slog.Source to *site
	dropped  atomic.Uint64
}

type site struct {
	rate       *rate.Limiter
	suppressed atomic.Uint64 // since the last line
}

var _ slog.Handler = Limit{}

// NewLimit returns a handler in front of another.
func NewLimit(next slog.Handler) Limit { return Limit{next, new(sites)} }

// Dropped returns how many records were suppressed since the start.
func (l Limit) Dropped() uint64 { return l.sites.dropped.Load() }

// Enabled implements slog.Handler.
func (l Limit) Enabled(ctx context.Context, level slog.Level) bool {
	return l.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l Limit) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return l.next.Handle(ctx, bounded(r, 0))
	}
	s := l.sites.of(r)
	if !s.rate.AllowN(r.Time, 1) {
		s.suppressed.Add(1)
		l.sites.dropped.Add(1)
		return nil
	}
	return l.next.Handle(ctx, bounded(r, s.suppressed.Swap(0)))
}

// of returns the place that has logged a record.
func (s *sites) of(r slog.Record) *site {
	if at, ok := s.counters.Load(r.PC); ok {
		return at.(*site)
	}
	var line slog.Source
	if source := r.Source(); source != nil {
		line = *source
	}
	at, _ := s.lines.LoadOrStore(line, &site{rate: rate.NewLimiter(perSecond, burst)})
	s.counters.Store(r.PC, at)
	return at.(*site)
}

// WithAttrs implements slog.Handler.
func (l Limit) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Limit{l.next.WithAttrs(attrs), l.sites}
}

// WithGroup implements slog.Handler.
func (l Limit) WithGroup(name string) slog.Handler { return Limit{l.next.WithGroup(name), l.sites} }

// bounded returns a record with the number of those suppressed before it, and without what its
// texts have beyond maxText.
func bounded(r slog.Record, suppressed uint64) slog.Record {
	long := len(r.Message) > maxText
	r.Attrs(func(a slog.Attr) bool {
		_, is := cut(a.Value)
		long = long || is
		return !long
	})
	if !long {
		if suppressed > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Uint64(suppressedKey, suppressed))
		}
		return r
	}
	short := slog.NewRecord(r.Time, r.Level, shortened(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if text, is := cut(a.Value); is {
			a.Value = slog.StringValue(text)
		}
		short.AddAttrs(a)
		return true
	})
	if suppressed > 0 {
		short.AddAttrs(slog.Uint64(suppressedKey, suppressed))
	}
	return short
}

// cut returns the text of a value, shortened, if it has one that is too long.
func cut(v slog.Value) (text string, long bool) {
	switch v = v.Resolve(); v.Kind() {
	case slog.KindString:
		text = v.String()
	case slog.KindAny:
		switch a := v.Any().(type) {
		case error:
			text = a.Error()
		case []string:
			text = strings.Join(a, " ")
		case fmt.Stringer:
			text = a.String()
		}
	}
	if len(text) <= maxText {
		return "", false
	}
	return shortened(text), true
}

// shortened returns a text, or its beginning and how much is missing.
func shortened(text string) string {
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes more)", strings.ToValidUTF8(text[:maxText], ""),
		len(text)-maxText)
}
