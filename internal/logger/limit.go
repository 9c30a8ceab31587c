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

// These constants define the rate limit for each place in the program that logs: its burst, and its
// lines per second.
const (
	burst     = 20
	perSecond = 1
)

// These constants limit the length in bytes of each text in a record, because someone outside the
// cluster may have chosen the text. Errors have a higher limit, because a stack trace does not fit
// in maxText.
const (
	maxText      = 1 << 10
	maxErrorText = 16 << 10
)

// maxMessages limits how many kinds of messages without a source location have their own rate
// limits. A message's kind is its first three words. All other such messages share one rate limit.
const maxMessages = 100

// suppressedKey is the key of the attribute that tells how many lines from the same place were
// dropped before this line.
const suppressedKey = "suppressed"

// Limit is a handler that limits how often each place in the program logs, and how long the texts
// can be. The rate limit does not apply to records below slog.LevelInfo.
type Limit struct {
	next  slog.Handler
	sites *sites
}

// sites contains all places that have logged.
type sites struct {
	counters sync.Map     // maps program counters (uintptr) to *site; an inlined line has several
	lines    sync.Map     // maps a slog.Source, or the kind of a message, to *site
	messages atomic.Int32 // number of message kinds in lines
	dropped  atomic.Uint64
	flush    func()
}

type site struct {
	rate       *rate.Limiter
	suppressed atomic.Uint64 // number of records suppressed since the last line
}

var _ slog.Handler = Limit{}

// NewLimit returns a handler that passes records to next. flush must wait until everything that
// next has written has been read.
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

// ofMessage returns the place shared by all records whose message has the same kind as text.
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

// Flush waits a limited time for the readers of the log. It is called by a process that is about to
// die from a panic.
func (l Limit) Flush() { l.sites.flush() }

// bounded returns a record with shortened texts and with the number of records suppressed before
// it.
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

// shortened returns v with each text cut to the given length, and reports whether any text was cut.
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
		default: // for example an error
			text = fmt.Sprint(a)
		}
	}
	if text, long = cut(text, most); long {
		return slog.StringValue(text), true
	}
	return v, false
}

// cut returns text unchanged if it is short enough. Otherwise it returns the beginning, followed by
// the number of missing bytes.
func cut(text string, most int) (_ string, long bool) {
	if len(text) <= most {
		return text, false
	}
	return fmt.Sprintf("%s... (%d bytes more)", strings.ToValidUTF8(text[:most], ""),
		len(text)-most), true
}
