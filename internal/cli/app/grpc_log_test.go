package app

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"google.golang.org/grpc/grpclog"
)

// TestGRPCLog checks that a run logs gRPC errors, that --debug logs everything, that each line is
// logged once, and that nothing is logged after the run has ended. The lines logged here are
// distinct from those of connections that earlier tests may still be closing.
func TestGRPCLog(t *testing.T) {
	for _, tt := range []struct {
		name  string
		debug bool
		want  []string
	}{
		{"errors", false, []string{"TestGRPCLog: error"}},
		{"all", true, []string{"TestGRPCLog: news", "TestGRPCLog: warning", "TestGRPCLog: error"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var errs bytes.Buffer
			a := &App{Process: Process{Stderr: &errs}}
			a.Flags.Register(&cobra.Command{}) // so that --debug can list the flags
			a.Flags.debug = tt.debug
			a.startLogging()
			grpclog.Info("TestGRPCLog: news")
			grpclog.Warning("TestGRPCLog: warning")
			grpclog.Error("TestGRPCLog: error")
			if got := grpclog.V(2); got != tt.debug {
				t.Errorf("details are wanted: %t, want %t", got, tt.debug)
			}
			a.StopLogging()
			grpclog.Error("TestGRPCLog: after the run")
			var lines []string
			for line := range strings.Lines(errs.String()) {
				if strings.Contains(line, "TestGRPCLog") {
					lines = append(lines, line)
				}
			}
			if !slices.EqualFunc(lines, tt.want, strings.Contains) {
				t.Errorf("heard %q, want %q", lines, tt.want)
			}
		})
	}
}
