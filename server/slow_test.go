package server

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// allSlow configures a member to log every call as slow, in text format.
func allSlow(c Config, log *harness.Log) Config {
	c.GRPC.WarnAfter = 1
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	return c
}

// slowCall waits for the log line about a slow call and returns the parts that it names.
func slowCall(t *testing.T, log *harness.Log, call string) (line string, parts []string) {
	t.Helper()
	want := "call=" + call + " "
	eventually(t, "the log has "+call, func() bool { return log.Contains(want) })
	line = log.Line(want)
	for _, m := range regexp.MustCompile(`([a-z-]+)-ms=[0-9.]+`).FindAllStringSubmatch(line, -1) {
		parts = append(parts, m[1])
	}
	return line, parts
}

// checkSlow checks that the log line about a slow call names exactly the given parts. Parts that
// can take less than a microsecond may be missing. So may the log sync, which can end before the
// call starts to record it.
func checkSlow(t *testing.T, log *harness.Log, call string, want ...string) {
	t.Helper()
	line, parts := slowCall(t, log, call)
	for _, p := range parts {
		if !slices.Contains(append(want, "took"), p) {
			t.Errorf("%s has part %s: %s", call, p, line)
		}
	}
	for _, p := range append(want, "took") {
		if !slices.Contains(parts, p) && !small[p] {
			t.Errorf("%s lacks part %s: %s", call, p, line)
		}
	}
	if !strings.Contains(line, "level=WARN") || strings.Contains(line, "secret") {
		t.Error(line)
	}
}

// small lists parts that may be missing from the line.
var small = map[string]bool{
	"queue": true, "checks": true, "commit": true, "apply": true,
	"log-sync": true,
}

// TestSlowCalls checks that the log states what slow calls waited for, over every path, at the
// leader and at a follower. Keys are not logged.
func TestSlowCalls(t *testing.T) { virtual.Test(t, testSlowCalls) }

func testSlowCalls(t *testing.T) {
	configs := clusterConfigs(t, 3)
	logs := make([]harness.Log, len(configs))
	byName := map[string]*harness.Log{}
	for i := range configs {
		configs[i] = allSlow(configs[i], &logs[i])
		byName[configs[i].Name] = &logs[i]
	}
	first, others := runLed(t, configs...) // the leader must not change during the test
	const window = 11 * time.Second        // the log limits the number of these lines per window
	written := []string{"commit", "log-sync", "apply"}
	for way, m := range map[string]*running{"queue": first, "forward": others[0]} {
		log := byName[m.cfg.Name]
		backoff.Sleep(t.Context(), window)
		socket := m.cfg.URLs.ListenClient[0]
		if err := put(t, dial(t, socket.Path, nil), "secret", "", ""); err != nil {
			t.Fatal(err)
		}
		checkSlow(t, log, "etcdserverpb.KV/Put", append(written, "checks", way)...)
		lh, err := client.New(client.Config{
			Endpoints: []string{socket.String()}, Dial: virtual.DialEndpoint,
		})
		if err != nil {
			t.Fatal(err)
		}
		backoff.Sleep(t.Context(), window)
		_, err = lh.Put(t.Context(), store.Put{Key: "secret"})
		_, got := lh.Get(t.Context(), "secret")
		_, found := lh.Describe(t.Context(), leases.Ref{ID: 4711})
		if errors.Join(err, got) != nil || !errors.Is(found, client.ErrLeaseNotFound) {
			t.Fatal(err, got, found)
		}
		const open = "leasehold.v1.StreamService/Open/"
		checkSlow(t, log, open+"put", append(written, way, "checks")...)
		checkSlow(t, log, open+"read_range", "confirm", "checks")
		checkSlow(t, log, open+"describe", "confirm", "checks")
		line, _ := slowCall(t, log, open+"describe")
		if leads := fmt.Sprintf("leader=%v", m == first); !strings.Contains(line, leads) ||
			!strings.Contains(line, "code=NotFound") {
			t.Errorf("want %s: %s", leads, line)
		}
		if err := lh.Close(); err != nil {
			t.Error(err)
		}
	}
}
