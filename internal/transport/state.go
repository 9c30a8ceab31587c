package transport

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"leasehold.dev/internal/listen"
)

// name is the member's ID as it is shown everywhere.
func (l *link) name() string { return memberName(l.id) }

func memberName(id uint64) string { return strconv.FormatUint(id, 16) }

// connected opens the queue.
func (l *link) connected(c *outbound) {
	l.mu.Lock()
	l.since, l.reached, l.out = time.Now(), true, c
	l.mu.Unlock()
	wake(l.filled) // with what waited for the connection
	if l.mayTell("connected") || len(l.told) > 0 {
		l.t.log.Info("connected to member", "member", l.name())
	}
	clear(l.told)
}

// disconnected closes it: what does not fit into a queue that nobody empties is
// lost, and what was written may be.
func (l *link) disconnected() {
	l.mu.Lock()
	l.since, l.out, l.parted = time.Time{}, nil, time.Now()
	l.dropped.Add(uint64(l.queue.trim(idleLimits)))
	l.mu.Unlock()
	wake(l.lost)
	select { // a hint from before the break has done its work
	case <-l.redial:
	default:
	}
}

// restartTime is how long a member may be away before the log warns of it: one that is restarted,
// or has been added and not been started yet, is no fault.
const restartTime = 10 * time.Second

// linePause is the least time between two lines of one kind about one member, and about all that
// are unknown here: without a token anybody is such a member, and of any ID.
const linePause = time.Minute

// linePauses has a pause for each kind of line.
type linePauses struct {
	mu sync.Mutex
	of map[string]*listen.Pause
}

// mayTell reports whether the log may have a line of a kind about the member. If so the next one
// has to wait.
func (l *link) mayTell(kind string) bool {
	if l.t.isListed(l.id) {
		kind += l.name()
	}
	p := &l.t.linePauses
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[string]*listen.Pause)
	}
	pause := p.of[kind]
	if pause == nil {
		pause = new(listen.Pause)
		p.of[kind] = pause
	}
	return pause.Over(linePause)
}

// brief are the kinds of failures that a restart brings about.
var brief = map[string]bool{"refused": true, "other": true}

// failed notes why there is no connection, and reports what follows from it. known is the process
// that had answered last when the dialing began: to be refused says nothing of a later one.
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
	if l.told[line] != text && l.mayTell(line) {
		l.told[line] = text
		l.t.log.Log(l.ctx, level, "no connection to member", "member", l.name(),
			"urls", joinURLs(l.urls), "error", err)
	}
	if gone {
		l.t.log.Info("member's process has ended", "member", l.name())
		l.t.cfg.Handler.Gone(l.id)
	}
	if expels(err) {
		l.t.cfg.Handler.Expelled(l.id, err)
	}
}

// expels reports whether err says that this member will never be let in again.
func expels(err error) bool {
	return errors.Is(err, ErrRemoved) || errors.Is(err, ErrLost) || errors.Is(err, ErrCopy) ||
		errors.Is(err, ErrVersion)
}

// failureKind groups errors that differ only in a port or a time, so that the
// log gets one line of each and not one for each attempt.
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
		// gRPC passes the text on and not the error. A refused certificate often
		// shows first as a connection reset, so the reason must get a line of its own.
		return "tls"
	}
	return "other"
}

func joinURLs(urls []url.URL) string { return strings.Join(urlTexts(urls), ",") }
