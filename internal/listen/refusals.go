package listen

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusalPause is the least time between two lines of the log about refused connections.
// A client that tries again and again must not fill the log.
const refusalPause = 5 * time.Second

// A Pause keeps lines of the log apart that others can bring about. Its zero value is one that is
// over. Its method may be called from several goroutines.
type Pause struct {
	mu   sync.Mutex
	next time.Time
}

// Over reports whether the pause is over, and begins another one of that length if so.
func (p *Pause) Over(length time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(length)
	return true
}

// refusals tells the log of connections that were refused.
type refusals struct {
	log *slog.Logger

	mu     sync.Mutex
	next   time.Time // when the log may be told again
	untold int       // refused since it was told
}

// tell logs why c was refused, and how many were before it without a line of their own.
func (r *refusals) tell(c net.Conn, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.next) {
		r.untold++
		return
	}
	r.log.Warn("refused a connection", "remote", c.RemoteAddr().String(),
		"local", c.LocalAddr().String(), "error", why, "refused-before-it", r.untold)
	r.next, r.untold = now.Add(refusalPause), 0
}

// wantsTLS answers a client without TLS on a port that has it. One that speaks HTTP/2 sees
// at least that this is none, and not that the connection just broke.
const wantsTLS = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n" +
	"Connection: close\r\n\r\nthis port speaks TLS: use https://\n"
