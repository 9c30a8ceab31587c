package page

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"
)

// audited waits until an audit log has a line that contains all the given fields.
func audited(t *testing.T, file string, want map[string]string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(*patience)
	for {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fits := func(line []byte) bool {
			var r map[string]any
			if json.Unmarshal(line, &r) != nil {
				return false // the last line may be incomplete
			}
			for k, v := range want {
				if r[k] != v {
					return false
				}
			}
			return true
		}
		if slices.ContainsFunc(bytes.Split(text, []byte("\n")), fits) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("no line has %v:\n%s", want, text)
		}
	}
}
