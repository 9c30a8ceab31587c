package app

import (
	"io"
	"sync"

	"google.golang.org/grpc/grpclog"
)

// GrpcLog is what gRPC logs to. There is one for the process, set before the first
// connection exists, because gRPC reads its logger without a lock. Which run of the
// command line hears it is changed behind it, as connections of an earlier run may still
// be closing.
var GrpcLog = sync.OnceValue(func() *switchedLog {
	all, errs := new(switchedWriter), new(switchedWriter)
	// Each line goes to its writer and to those of what is less severe.
	l := &switchedLog{grpclog.NewLoggerV2WithVerbosity(all, io.Discard, errs, 4), all, errs}
	grpclog.SetLoggerV2(l)
	return l
})

// A switchedLog is a log whose destination may be changed at any time, by anybody.
type switchedLog struct {
	grpclog.LoggerV2
	all, errs *switchedWriter // one of them has a destination, or none
}

// setErrors sends errors, and what is worse, to w from now on, and nothing else. With a
// nil w nothing is written. Once it has returned nothing is written to where it went before.
func (l *switchedLog) setErrors(w io.Writer) {
	l.all.set(nil)
	l.errs.set(w)
}

// setAll sends all to w from now on.
func (l *switchedLog) setAll(w io.Writer) {
	l.errs.set(nil)
	l.all.set(w)
}

// V says whether details of this level are wanted, so that they are not even formatted
// for nobody.
func (l *switchedLog) V(level int) bool {
	return l.all.wanted() && l.LoggerV2.V(level)
}

// A switchedWriter writes to a destination that may be changed at any time. Without one it
// takes what is written and drops it.
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

// complaints writes to the standard error of a run, between what the run says there.
type complaints struct{ a *App }

// Write implements io.Writer.
func (c complaints) Write(p []byte) (int, error) {
	c.a.Mu.Lock()
	defer c.a.Mu.Unlock()
	c.a.messageLocked(p)
	return len(p), nil
}
