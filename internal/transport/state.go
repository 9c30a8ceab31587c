package transport

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"leasehold.dev/internal/listen"
)

// name returns the member's ID for display.
func (l *link) name() string { return memberName(l.id) }

func memberName(id uint64) string { return strconv.FormatUint(id, 16) }

// connected opens the queue for writing to c.
func (l *link) connected(c *outbound) {
	l.mu.Lock()
	l.since, l.reached, l.out = time.Now(), true, c
	l.mu.Unlock()
	wake(l.filled) // messages that waited for the connection are in the queue
	if l.mayLog("connected") || len(l.logged) > 0 {
		l.t.log.Info("connected to member", "member", l.name())
	}
	clear(l.logged)
}

// disconnected closes the queue. Messages that do not fit in it are lost, and messages that were
// already written may be lost.
func (l *link) disconnected() {
	l.mu.Lock()
	l.since, l.out, l.parted = time.Time{}, nil, time.Now()
	l.dropped.Add(uint64(l.queue.trim(idleLimits)))
	l.mu.Unlock()
	wake(l.lost)
	select { // discard an old signal from before the connection broke
	case <-l.redial:
	default:
	}
}

// restartTime is how long a member can be away before the log contains a warning. A member that
// restarts, or that was added but not started yet, is not faulty.
const restartTime = 10 * time.Second

// linePause is the minimum time between two log lines of the same kind about one member, or about
// all unknown members together. Without a token, any process can claim to be a member with any ID.
const linePause = time.Minute

// linePauses tracks the pause for each kind of line.
type linePauses struct {
	mu sync.Mutex
	of map[string]*rate.Sometimes
}

// mayLog reports whether a line of this kind about the member can be logged now. If so, the next
// such line has to wait.
func (l *link) mayLog(kind string) (may bool) {
	if l.t.isListed(l.id) {
		kind += l.name()
	}
	p := &l.t.linePauses
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[string]*rate.Sometimes)
	}
	pause := p.of[kind]
	if pause == nil {
		pause = &rate.Sometimes{Interval: linePause}
		p.of[kind] = pause
	}
	pause.Do(func() { may = true })
	return may
}

// brief contains the kinds of failure that a restart causes.
var brief = map[string]bool{"refused": true, "other": true}

// failed records why there is no connection, and reports what follows from that. known is the
// process that had last answered when dialing began. A refused connection says nothing about a
// later process.
func (l *link) failed(err error, known uint64) {
	if l.ctx.Err() != nil {
		return
	}
	var refused errRefused
	l.mu.Lock()
	gone := errors.As(err, &refused) && l.reached && l.process != 0 && l.process == known && !l.gone
	if gone {
		l.gone = true
	}
	kind, level := failureKind(err), slog.LevelWarn
	if brief[kind] && time.Since(l.parted) < restartTime {
		level = slog.LevelInfo
	}
	l.mu.Unlock()
	line, text := level.String()+kind, kind
	if remote := new(*remoteError); errors.As(err, remote) {
		text = (*remote).Text
	}
	if l.logged[line] != text && l.mayLog(line) {
		l.logged[line] = text
		l.t.log.Log(l.ctx, level, "no connection to member", "member", l.name(),
			"urls", listen.JoinURLs(l.urls), "error", err)
	}
	if gone {
		l.t.log.Info("member's process has ended", "member", l.name())
		l.t.cfg.Handler.Gone(l.id)
	}
	if expels(err) {
		l.t.cfg.Handler.Expelled(l.id, err)
	}
}

// expels reports whether err means that the other member will never admit this member again.
func expels(err error) bool {
	return errors.Is(err, ErrRemoved) || errors.Is(err, ErrLost) || errors.Is(err, ErrCopy) ||
		errors.Is(err, ErrVersion)
}

// failureKind groups errors that differ only in a port or time, so that the log gets one line for
// each kind rather than one for each attempt.
func failureKind(err error) string {
	var refused errRefused
	var remote *remoteError
	switch {
	case errors.As(err, &refused):
		return "refused"
	case errors.Is(err, errFormats):
		return "formats"
	case errors.As(err, &remote):
		return "answer"
	case expels(err):
		return "expelled"
	case errors.Is(err, errSilent), errors.Is(err, context.DeadlineExceeded):
		return "silent"
	case strings.Contains(err.Error(), "tls:"), strings.Contains(err.Error(), "x509:"):
		// gRPC passes on only the text of the error. A rejected certificate often looks like a
		// connection reset at first, so the actual reason gets its own log line.
		return "tls"
	}
	return "other"
}
