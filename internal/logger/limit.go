package logger

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Rate limit of each place in the program that logs: a burst, then lines per second.
const (
	burst     = 20
	perSecond = 1
)

// Bounds for each text of a record, in bytes, because a stranger may have chosen it. A stack trace,
// which only errors have, does not fit into maxText.
const (
	maxText      = 1 << 10
	maxErrorText = 16 << 10
)

// maxMessages is how many kinds of message without a source location have a rate of their own. The
// kind is the first three words. All other such messages share one rate.
const maxMessages = 100

// suppressedKey is the attribute with the number of lines from the same place that were dropped
// before a line.
const suppressedKey = "suppressed"

// Limit is a handler that limits how often each place in the program logs, and how long the texts
// are. Records below slog.LevelInfo are not limited in rate.
type Limit struct {
	next  slog.Handler
	sites *sites
}

// sites are all places that have logged.
type sites struct {
	counters sync.Map     // program counters, uintptr to *site; an inlined line has several
	lines    sync.Map     // slog.Source, or the kind of a message, to *site
	messages atomic.Int32 // kinds in lines
	dropped  atomic.Uint64
	flush    func()
}

type site struct {
	rate       *rate.Limiter
	suppressed atomic.Uint64 // since the last line
}

var _ slog.Handler = Limit{}

// NewLimit returns a handler in front of another. flush waits until everything that next has
// written is read.
func NewLimit(next slog.Handler, flush func()) Limit { return Limit{next, &sites{flush: flush}} }

// Dropped returns the number of records suppressed since the start.
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

// of returns the place that logged a record.
func (s *sites) of(r slog.Record) *site {
	if r.PC == 0 {
		return s.ofMessage(r.Message)
	}
	if at, ok := s.counters.Load(r.PC); ok {
		return at.(*site)
	}
	var line slog.Source
	if source := r.Source(); source != nil {
		line = *source
	}
	at, _ := s.lines.LoadOrStore(line, newSite())
	s.counters.Store(r.PC, at)
	return at.(*site)
}

// ofMessage returns the place for records with a message like this one.
func (s *sites) ofMessage(text string) *site {
	words := strings.Fields(text[:min(len(text), maxText)])
	kind := strings.Join(words[:min(len(words), 3)], " ")
	if at, ok := s.lines.Load(kind); ok {
		return at.(*site)
	}
	if s.messages.Add(1) > maxMessages {
		s.messages.Store(maxMessages)
		kind = ""
	}
	at, _ := s.lines.LoadOrStore(kind, newSite())
	return at.(*site)
}

func newSite() *site { return &site{rate: rate.NewLimiter(perSecond, burst)} }

// WithAttrs implements slog.Handler.
func (l Limit) WithAttrs(attrs []slog.Attr) slog.Handler {
	attrs = slices.Clone(attrs)
	for i := range attrs {
		attrs[i].Value, _ = shortened(attrs[i].Value, maxText)
	}
	return Limit{l.next.WithAttrs(attrs), l.sites}
}

// WithGroup implements slog.Handler.
func (l Limit) WithGroup(name string) slog.Handler { return Limit{l.next.WithGroup(name), l.sites} }

// Flush waits a limited time for the readers of the log. A process that is about to die of a panic
// calls it.
func (l Limit) Flush() { l.sites.flush() }

// bounded returns a record with the number of records suppressed before it, and with shortened
// texts.
func bounded(r slog.Record, suppressed uint64) slog.Record {
	most := maxText
	if r.Level >= slog.LevelError {
		most = maxErrorText
	}
	attrs := make([]slog.Attr, 0, r.NumAttrs()+1)
	message, long := cut(r.Message, most)
	r.Attrs(func(a slog.Attr) bool {
		var is bool
		a.Value, is = shortened(a.Value, most)
		attrs, long = append(attrs, a), long || is
		return true
	})
	if suppressed > 0 {
		attrs, long = append(attrs, slog.Uint64(suppressedKey, suppressed)), true
	}
	if !long {
		return r
	}
	short := slog.NewRecord(r.Time, r.Level, message, r.PC)
	short.AddAttrs(attrs...)
	return short
}

// shortened returns a value with each of its texts cut to at most most bytes, and whether it
// differs.
func shortened(v slog.Value, most int) (_ slog.Value, long bool) {
	v = v.Resolve()
	var text string
	switch v.Kind() {
	case slog.KindString:
		text = v.String()
	case slog.KindGroup:
		attrs := slices.Clone(v.Group())
		for i := range attrs {
			var is bool
			attrs[i].Value, is = shortened(attrs[i].Value, most)
			long = long || is
		}
		if long {
			return slog.GroupValue(attrs...), true
		}
		return v, false
	case slog.KindAny:
		switch a := v.Any().(type) {
		case []string:
			text = strings.Join(a, " ")
		case []byte:
			text = string(a)
		default: // such as an error
			text = fmt.Sprint(a)
		}
	}
	if text, long = cut(text, most); long {
		return slog.StringValue(text), true
	}
	return v, false
}

// cut returns a text, or its beginning and how many bytes are missing.
func cut(text string, most int) (_ string, long bool) {
	if len(text) <= most {
		return text, false
	}
	return fmt.Sprintf("%s... (%d bytes more)", strings.ToValidUTF8(text[:most], ""),
		len(text)-most), true
}
