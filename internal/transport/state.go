package transport

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// name is the member's ID as it is shown everywhere.
func (l *link) name() string { return memberName(l.id) }

func memberName(id uint64) string { return strconv.FormatUint(id, 16) }

// connected opens the queue.
func (l *link) connected() {
	l.mu.Lock()
	l.since, l.reached = time.Now(), true
	clear(l.told)
	l.mu.Unlock()
	wake(l.filled) // with what waited for the connection
	l.t.log.Info("connected to member", "member", l.name())
}

// disconnected closes it: what does not fit into a queue that nobody empties is
// lost, and what was written may be.
func (l *link) disconnected() {
	l.mu.Lock()
	l.since = time.Time{}
	l.queue.trim(idleLimits)
	l.mu.Unlock()
	wake(l.lost)
	select { // a hint from before the break has done its work
	case <-l.redial:
	default:
	}
}

// saw notes which process of the member answered or asked, and reports Gone if
// it is a new one. It returns true if process is one that ended before: what was
// delayed of it must not be taken for news.
func (l *link) saw(process uint64) (stale bool) {
	l.mu.Lock()
	if process == l.previous {
		l.mu.Unlock()
		return true
	}
	if process == l.process {
		l.gone = false // it was only its listener that had gone
		l.mu.Unlock()
		return false
	}
	report := l.process != 0 && !l.gone
	l.previous, l.process, l.gone = l.process, process, false
	l.mu.Unlock()
	if report {
		l.t.log.Warn("member has begun anew", "member", l.name())
		l.t.cfg.Handler.Gone(l.id)
	}
	return false
}

// failed notes why there is no connection, and reports what follows from it.
func (l *link) failed(err error) {
	if l.ctx.Err() != nil {
		return
	}
	var refused errRefused
	l.mu.Lock()
	gone := errors.As(err, &refused) && l.reached && l.process != 0 && !l.gone
	if gone {
		l.gone = true
	}
	kind := failureKind(err)
	tell := !l.told[kind]
	l.told[kind] = true
	l.mu.Unlock()
	if tell {
		l.t.log.Warn("no connection to member", "member", l.name(), "urls", joinURLs(l.urls),
			"error", err)
	}
	if gone {
		l.t.log.Warn("member's process has ended", "member", l.name())
		l.t.cfg.Handler.Gone(l.id)
	}
	if errors.Is(err, ErrRemoved) {
		l.t.cfg.Handler.Removed(l.id)
	}
}

// failureKind groups errors that differ only in a port or a time, so that the
// log gets one line of each and not one for each attempt.
func failureKind(err error) string {
	var refused errRefused
	var remote *RemoteError
	switch {
	case errors.As(err, &refused):
		return "refused"
	case errors.As(err, &remote):
		return remote.Text
	case errors.Is(err, ErrRemoved):
		return "removed"
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
