package app

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// SignalError means that a signal arrived before the command acquired anything.
type SignalError struct{ Signal syscall.Signal }

// Error implements error.
func (e *SignalError) Error() string { return "interrupted: " + e.Signal.String() }

// An Interrupt ends a context at the first termination signal. A second signal triggers the default
// action.
type Interrupt struct {
	mute    func()               // stops the delivery of signals
	Signals chan os.Signal       // capacity 1
	settle  chan chan<- struct{} // see Settle
	done    chan struct{}        // closed by Stop
	ended   chan struct{}        // closed once no more signals are received
	taken   os.Signal            // set before ended is closed
	once    sync.Once
}

// CancelBySignal cancels a context when a signal arrives, until the Interrupt is stopped.
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

// Settle waits until a signal that has already arrived has canceled the context. Otherwise, a
// program that was ended by the same signal could be reaped before the context is canceled.
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

// heeded omits SIGHUP if it is ignored, as under nohup. Listening for it would stop it from being
// ignored, both here and in programs that are run.
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

// Stop restores the default action of signals. It can be called more than once.
func (i *Interrupt) Stop() {
	i.once.Do(func() {
		i.mute()
		close(i.done)
	})
	<-i.ended
}

// PassOn stops the Interrupt. If a signal arrived too late to end the wait, PassOn forwards it to
// another listener, so that the program receives it. That listener must already be registered, and
// its channel must not have been read.
func (i *Interrupt) PassOn(to chan<- os.Signal) {
	i.Stop()
	late := i.taken
	select {
	case late = <-i.Signals:
	default:
	}
	if late == nil || len(to) > 0 { // the listener has received the signal itself
		return
	}
	select {
	case to <- late:
	default:
	}
}
