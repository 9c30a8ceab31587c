package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// Two processes of one member can run at the same time. This happens if its data directory was
// copied and both copies are in use, or if the directory was moved while a process was still
// running. Both processes would vote and acknowledge under one ID without knowing each other's
// promises. So a new process is admitted only when the previous one no longer answers. A process
// that was killed or has exited does not answer, because its connections are closed. If its machine
// is down, the new process has to wait for at most pingTimeout.
//
// A new process that is rejected may no longer be alive: its stream may have been delayed, and the
// process may have ended. So the refusal carries a mark, which a live process sends when it
// reconnects. Such a process started before the other process answered a ping, and was still
// running after the mark was made, so both processes were alive at the time of the ping. A restart
// is never mistaken for this.

// pingTimeout is how long a process can take to show that it is alive.
const pingTimeout = 2 * time.Second

// A markedError is a refusal that carries a mark. By repeating the mark, a process proves that it
// is alive.
type markedError struct {
	error
	mark uint64
}

func (e *markedError) Unwrap() error { return e.error }

// noteMark saves the mark of a refusal for the next hello.
func (l *link) noteMark(err error) {
	var marked *markedError
	if errors.As(err, &marked) {
		l.mu.Lock()
		l.refusedMark = marked.mark
		l.mu.Unlock()
	}
}

// observe records which process of the member answered or connected. If it is a new process,
// observe reports that the previous one is gone. A mark that matches the link's proves that the
// process was alive after that mark was made. observe returns an error if the process is not
// admitted: either it is known to have ended, so its delayed messages must be ignored, or the
// previous process is still alive.
func (l *link) observe(process, mark uint64) error {
	l.mu.Lock()
	current, out := l.process, l.out
	if process == current {
		l.gone = false // only its listener was gone
		l.mu.Unlock()
		return nil
	}
	lives := mark != 0 && mark == l.mark
	refusal := &markedError{mark: l.mark}
	stale := process == l.previous && !lives
	l.mu.Unlock()
	if stale {
		refusal.error = fmt.Errorf("process %x of member %s has ended", process, l.name())
		return refusal
	}
	if current == 0 || out == nil || out.process != current || !out.alive() {
		return l.replace(current, process)
	}
	if !lives {
		refusal.error = fmt.Errorf("another process of member %s is connected and responding", l.name())
		return refusal
	}
	l.t.cfg.Handler.Copied(l.id)
	_ = out.ping(true)
	return ErrCopy
}

// replace admits a new process in place of current.
func (l *link) replace(current, process uint64) error {
	l.mu.Lock()
	if l.process != current {
		l.mu.Unlock()
		return fmt.Errorf("another process of member %s has just connected", l.name())
	}
	report := current != 0 && !l.gone
	out := l.out
	l.previous, l.process, l.gone = current, process, false
	l.mark = rand.Uint64() | 1
	l.mu.Unlock()
	if out != nil {
		out.cancel(errSilent)
	}
	l.t.endReplaced(l.id, process)
	if report {
		l.t.log.Info("a new process replaced the previous process of a member", "member", l.name())
		l.t.cfg.Handler.Gone(l.id)
	}
	return nil
}

// endReplaced ends the member's stream if it belongs to a process that was replaced. If that
// process is still alive, it reconnects and receives the reason.
func (t *Transport) endReplaced(member, process uint64) {
	t.mu.RLock()
	in := t.inbound[member]
	t.mu.RUnlock()
	if in != nil && in.process != process {
		in.end(errReplaced)
	}
}

// alive reports whether the process at the other end currently answers.
func (c *outbound) alive() bool { return c.ping(false) == nil }

// ping requests an answer from the process at the other end. If copied is true, it also tells that
// process that another process with the same identity was rejected.
func (c *outbound) ping(copied bool) error {
	ctx, cancel := context.WithTimeout(c.ctx, pingTimeout)
	defer cancel()
	ask := new(blob)
	if copied {
		ask.data = []byte{1}
	}
	answer, err := c.call(ctx, pingDesc.MethodName, ask)
	if err == nil && string(answer.data) != strconv.FormatUint(c.process, 16) {
		err = errors.New("transport: another process responded")
	}
	return err
}

// call calls a method of the process at the other end.
func (c *outbound) call(ctx context.Context, method string, ask *blob) (*blob, error) {
	t := c.link.t
	h := hello{
		cluster: t.cfg.Cluster, from: t.cfg.Self, to: c.link.id, instance: t.instance(),
		formats: t.cfg.Formats,
	}
	return c.session.unary(h.context(ctx, nil), method, ask)
}

// called returns the member and process that made a call with outbound.call, and the call's
// argument.
func (t *Transport) called(
	ctx context.Context, decode func(any) error,
) (h hello, ask *blob, err error) {
	ask = new(blob)
	if err := decode(ask); err != nil {
		return h, nil, err
	}
	if err := t.proven(ctx); err != nil {
		return h, nil, toStatus(calledUnary{ctx}, err)
	}
	h, err = readHello(ctx)
	if err != nil || h.cluster != t.cfg.Cluster || h.to != t.cfg.Self {
		return h, nil, errors.New("transport: the call is for another member")
	}
	return h, ask, nil
}

// servePing answers a ping and identifies this process.
func servePing(
	srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
) (any, error) {
	t := srv.(*Transport)
	h, ask, err := t.called(ctx, decode)
	if err != nil {
		return nil, err
	}
	if len(ask.data) > 0 && t.isFromMember(ctx, h.from) {
		t.cfg.Handler.Copied(t.cfg.Self)
	}
	return &blob{data: []byte(strconv.FormatUint(t.cfg.Process, 16))}, nil
}

// isFromMember reports whether a call arrived over the connection that carries a member's messages.
// If so, that member is the caller, and has been admitted.
func (t *Transport) isFromMember(ctx context.Context, member uint64) bool {
	t.mu.RLock()
	in := t.inbound[member]
	t.mu.RUnlock()
	if in == nil {
		return false
	}
	caller, ok := peer.FromContext(ctx)
	streams, known := peer.FromContext(in.stream.Context())
	return ok && known && caller.Addr == streams.Addr // each connection has its own address
}
