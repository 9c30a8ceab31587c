package app

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// SignalError says that a signal came while nothing was held yet.
type SignalError struct{ Signal syscall.Signal }

// Error implements error.
func (e *SignalError) Error() string { return "interrupted: " + e.Signal.String() }

// An Interrupt ends a context at the first signal to terminate. A second signal has its default
// action.
type Interrupt struct {
	mute    func()         // stops the signals
	Signals chan os.Signal // capacity 1
	done    chan struct{}  // closed by stop
	ended   chan struct{}  // closed when nothing more is taken
	taken   os.Signal      // set before
	once    sync.Once
}

// CancelBySignal returns an interrupt that ends a context, until it is stopped.
func (a *App) CancelBySignal(cancel context.CancelCauseFunc) *Interrupt {
	i := &Interrupt{
		Signals: make(chan os.Signal, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
	i.mute = a.Relay(i.Signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer close(i.ended)
		select {
		case s := <-i.Signals:
			i.taken = s
			n, _ := s.(syscall.Signal)
			cancel(&SignalError{n})
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

// UntilSignal returns a context that ends when the user interrupts.
func (a *App) UntilSignal() (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(a.Background())
	i := a.CancelBySignal(cancel)
	return ctx, func() {
		i.Stop()
		cancel(nil)
	}
}

// Stop lets signals do again what they do when nobody listens. It may be called more than once.
func (i *Interrupt) Stop() {
	i.once.Do(func() {
		i.mute()
		close(i.done)
	})
	<-i.ended
}

// PassOn stops, and gives a signal that came meanwhile to another listener, which listens already,
// and from whose channel nobody has received yet. So a signal that came too late to end the waiting
// ends what was waited for.
func (i *Interrupt) PassOn(to chan<- os.Signal) {
	i.Stop()
	late := i.taken
	select {
	case late = <-i.Signals:
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
