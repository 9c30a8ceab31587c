package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/test/harness"
)

// TestLinesAreRationed checks that an unknown process that connects repeatedly, with one ID or
// many, causes only a few log lines per minute.
func TestLinesAreRationed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(harness.Log)
		m := &member{recorder: newRecorder(), tb: t, log: log}
		m.Transport = New(Config{
			Cluster: 1, Self: 1, Process: 1, Formats: Formats{1, 1}, Handler: m.recorder,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		defer m.Close() //nolint:errcheck // it never fails
		m.listed = map[uint64][]url.URL{2: {}}
		const kinds, minutes = 4, 5
		for name, ids := range map[string]func(i int) uint64{
			"a member":               func(int) uint64 { return 2 },
			"one stranger":           func(int) uint64 { return 7 },
			"a stranger of many IDs": func(i int) uint64 { return uint64(i) + 8 },
		} {
			before := log.Count("\n")
			for i := range minutes * 120 {
				l := newLink(m.Transport, Peer{ID: ids(i)}, nil)
				l.failed(&remoteError{fmt.Sprint("go away ", i)}, 0)
				l.connected(&outbound{link: l})
				l.disconnected()
				l.failed(errSilent, 0)
				l.failed(errors.New("broken pipe"), 0)
				l.failed(&remoteError{fmt.Sprint("go away again ", i)}, 0)
				l.cancel()
				time.Sleep(time.Second / 2)
			}
			if n := log.Count("\n") - before; n > (kinds+1)*(minutes+1) {
				t.Errorf("%s: %d lines in %d minutes", name, n, minutes)
			}
		}
	})
}
