package logger

import "testing"

// TestSurviveBrokenPipeAgain checks that repeated calls of SurviveBrokenPipe register nothing, so a
// process may call it for each command that it starts.
func TestSurviveBrokenPipeAgain(t *testing.T) {
	if n := testing.AllocsPerRun(100, SurviveBrokenPipe); n > 0 {
		t.Errorf("each call allocates %v times", n)
	}
}
