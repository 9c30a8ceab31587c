package app

import (
	"io"
	"sync"

	"google.golang.org/grpc/grpclog"
)

// GrpcLog is gRPC's log. There is one per process. It is set before the first connection exists,
// because gRPC reads its logger without a lock. Later runs of the command line change only the
// destination, since connections of an earlier run might still be closing.
var GrpcLog = sync.OnceValue(func() *switchedLog {
	all, errs := new(switchedWriter), new(switchedWriter)
	// gRPC writes each line to the writers of its own and all lower severities.
	l := &switchedLog{grpclog.NewLoggerV2WithVerbosity(all, io.Discard, errs, 4), all, errs}
	grpclog.SetLoggerV2(l)
	return l
})

// A switchedLog is a log whose destination can be changed at any time, by any goroutine.
type switchedLog struct {
	grpclog.LoggerV2
	all, errs *switchedWriter // at most one of them has a destination
}

// setErrors sends only errors to w from now on. If w is nil, it discards them. After setErrors
// returns, nothing is written to the previous destination.
func (l *switchedLog) setErrors(w io.Writer) {
	l.all.set(nil)
	l.errs.set(w)
}

// setAll sends all lines to w from now on.
func (l *switchedLog) setAll(w io.Writer) {
	l.errs.set(nil)
	l.all.set(w)
}

// V reports whether messages at this verbosity are needed. gRPC does not format the others.
func (l *switchedLog) V(level int) bool {
	return l.all.wanted() && l.LoggerV2.V(level)
}

// A switchedWriter writes to a destination that can be changed at any time. Without a destination,
// it discards its input.
type switchedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *switchedWriter) set(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w = w
}

func (s *switchedWriter) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w != nil
}

// Write implements io.Writer.
func (s *switchedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return len(p), nil
	}
	return s.w.Write(p)
}

// complaints writes to a run's standard error without mixing with the run's other output.
type complaints struct{ a *App }

// Write implements io.Writer.
func (c complaints) Write(p []byte) (int, error) {
	c.a.Mu.Lock()
	defer c.a.Mu.Unlock()
	c.a.messageLocked(p)
	return len(p), nil
}
