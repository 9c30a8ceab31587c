package logger

import "testing"

// TestSurviveBrokenPipeAgain: further calls register nothing, so that a process may call
// SurviveBrokenPipe for each command that it starts.
func TestSurviveBrokenPipeAgain(t *testing.T) {
	if n := testing.AllocsPerRun(100, SurviveBrokenPipe); n > 0 {
		t.Errorf("each call allocates %v times", n)
	}
}
