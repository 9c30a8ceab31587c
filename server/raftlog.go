package server

import (
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
)

// raftLogger hands the Raft library's log on. What the library calls info is
// of use only to who debugs it.
type raftLogger struct{ log *slog.Logger }

var _ raft.Logger = raftLogger{}

func raftText(v ...any) string { return "raft: " + fmt.Sprint(v...) }

func raftTextf(format string, v ...any) string { return "raft: " + fmt.Sprintf(format, v...) }

// The methods of raft.Logger.

func (l raftLogger) Debug(v ...any)              { l.log.Debug(raftText(v...)) }
func (l raftLogger) Debugf(f string, v ...any)   { l.log.Debug(raftTextf(f, v...)) }
func (l raftLogger) Info(v ...any)               { l.log.Debug(raftText(v...)) }
func (l raftLogger) Infof(f string, v ...any)    { l.log.Debug(raftTextf(f, v...)) }
func (l raftLogger) Warning(v ...any)            { l.log.Warn(raftText(v...)) }
func (l raftLogger) Warningf(f string, v ...any) { l.log.Warn(raftTextf(f, v...)) }
func (l raftLogger) Error(v ...any)              { l.log.Error(raftText(v...)) }
func (l raftLogger) Errorf(f string, v ...any)   { l.log.Error(raftTextf(f, v...)) }
func (l raftLogger) Fatal(v ...any)              { panic(raftText(v...)) }
func (l raftLogger) Fatalf(f string, v ...any)   { panic(raftTextf(f, v...)) }
func (l raftLogger) Panic(v ...any)              { panic(raftText(v...)) }
func (l raftLogger) Panicf(f string, v ...any)   { panic(raftTextf(f, v...)) }
