package cli

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"leasehold.dev/internal/logger"
)

// signalError says that a signal came while nothing was held yet.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return "interrupted: " + e.signal.String() }

// An interrupt ends a context at the first signal to terminate. A second signal has its default
// action.
type interrupt struct {
	mute    func()         // stops the signals
	signals chan os.Signal // capacity 1
	done    chan struct{}  // closed by stop
	ended   chan struct{}  // closed when nothing more is taken
	taken   os.Signal      // set before
	once    sync.Once
}

// cancelBySignal returns an interrupt that ends a context, until it is stopped.
func (a *app) cancelBySignal(cancel context.CancelCauseFunc) *interrupt {
	i := &interrupt{
		signals: make(chan os.Signal, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
	i.mute = a.notify(i.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer close(i.ended)
		select {
		case s := <-i.signals:
			i.taken = s
			n, _ := s.(syscall.Signal)
			cancel(&signalError{n})
			i.mute()
		case <-i.done:
		}
	}()
	return i
}

// heeded leaves out the end of the terminal if it is ignored, as under nohup: to listen to it would
// end that, here and in the commands that are run.
func heeded(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(slices.Clone(signals), func(s os.Signal) bool {
		return s == syscall.SIGHUP && signal.Ignored(s)
	})
}

// untilSignal returns a context that ends when the user interrupts.
func (a *app) untilSignal() (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(a.context())
	i := a.cancelBySignal(cancel)
	return ctx, func() {
		i.stop()
		cancel(nil)
	}
}

// stop lets signals do again what they do when nobody listens. It may be called more than once.
func (i *interrupt) stop() {
	i.once.Do(func() {
		i.mute()
		close(i.done)
	})
	<-i.ended
}

// passOn stops, and gives a signal that came meanwhile to another listener, which listens already,
// and from whose channel nobody has received yet. So a signal that came too late to end the waiting
// ends what was waited for.
func (i *interrupt) passOn(to chan<- os.Signal) {
	i.stop()
	late := i.taken
	select {
	case late = <-i.signals:
	default:
	}
	if late == nil || len(to) > 0 { // it has it itself
		return
	}
	select {
	case to <- late:
	default:
	}
}

// interruptWaiting is cancelBySignal for what a command waits for before it runs another, to which
// startFed passes the signal on.
func (a *app) interruptWaiting(cancel context.CancelCauseFunc) (stop func()) {
	logger.SurviveBrokenPipe()
	a.waiting = a.cancelBySignal(cancel)
	return a.waiting.stop
}
