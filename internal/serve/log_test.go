package serve

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuckPipe is a standard error that nothing reads until it is released.
type stuckPipe struct {
	released chan struct{}
	text     bytes.Buffer
}

func (p *stuckPipe) Write(b []byte) (int, error) {
	<-p.released
	return p.text.Write(b)
}

// Goal: logging does not wait for the reader of the log, and the log reports dropped lines (T43).
// Method: a blocked standard error, more lines than fit, and then a reader.
func TestLogNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := &stuckPipe{released: make(chan struct{})}
		lg, err := logFlags{level: "debug", format: "json"}.open(nil, pipe)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("x", 1000)
		began := time.Now()
		for range 4000 {
			lg.Debug("line", "text", text)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("logging took %v", took)
		}
		close(pipe.released)
		lg.flush()
		if err := lg.close(); err != nil {
			t.Error(err)
		}
		if got := pipe.text.String(); !strings.Contains(got, "lines are missing from the log") {
			t.Errorf("the log does not tell what is missing: %d bytes", len(got))
		}
	})
}
