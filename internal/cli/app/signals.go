package app

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// SignalError means that a signal arrived before the command held anything.
type SignalError struct{ Signal syscall.Signal }

// Error implements error.
func (e *SignalError) Error() string { return "interrupted: " + e.Signal.String() }

// An Interrupt ends a context at the first termination signal. A second signal has its default
// action.
type Interrupt struct {
	mute    func()               // stops the delivery of signals
	Signals chan os.Signal       // capacity 1
	settle  chan chan<- struct{} // see Settle
	done    chan struct{}        // closed by Stop
	ended   chan struct{}        // closed when no more signals are received
	taken   os.Signal            // set before ended is closed
	once    sync.Once
}

// CancelBySignal cancels a context at a signal, until the Interrupt is stopped.
func (a *App) CancelBySignal(cancel context.CancelCauseFunc) *Interrupt {
	i := &Interrupt{
		Signals: make(chan os.Signal, 1), settle: make(chan chan<- struct{}),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	i.mute = a.Relay(i.Signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer close(i.ended)
		for {
			select {
			case s := <-i.Signals:
				i.taken = s
				n, _ := s.(syscall.Signal)
				cancel(&SignalError{n})
				i.mute()
				return
			case settled := <-i.settle:
				if len(i.Signals) == 0 {
					close(settled)
				}
			case <-i.done:
				return
			}
		}
	}()
	return i
}

// Settle returns once the context has been canceled by a signal that has arrived, if there was one.
// Otherwise, a command that the same signal ended may be reaped before that.
func (i *Interrupt) Settle() {
	settled := make(chan struct{})
	select {
	case i.settle <- settled:
		select {
		case <-settled:
		case <-i.ended:
		}
	case <-i.ended:
	}
}

// heeded omits SIGHUP if it is ignored, as under nohup: listening to it would no longer ignore it,
// here and in the commands that are run.
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

// Stop restores the default action of signals. It may be called more than once.
func (i *Interrupt) Stop() {
	i.once.Do(func() {
		i.mute()
		close(i.done)
	})
	<-i.ended
}

// PassOn stops, and forwards a signal that arrived meanwhile to another listener, which already
// listens and has received nothing from its channel. So a signal that arrived too late to end the
// wait is passed on to the command.
func (i *Interrupt) PassOn(to chan<- os.Signal) {
	i.Stop()
	late := i.taken
	select {
	case late = <-i.Signals:
	default:
	}
	if late == nil || len(to) > 0 { // it has the signal itself
		return
	}
	select {
	case to <- late:
	default:
	}
}
