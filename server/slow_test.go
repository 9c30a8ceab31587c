package server

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/replica"
	"leasehold.dev/test/virtual"
)

// allSlow has every call logged, in text.
func allSlow(c Config, log *lockedBuffer) Config {
	c.GRPC.WarnAfter = 1
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	return c
}

// unbounded lets a member that runs log all slow calls.
func unbounded(r *running) {
	s := r.core.tracer.slow
	s.mu.Lock()
	s.most = 1 << 30
	s.mu.Unlock()
}

// slowCall waits for the line about a slow call, and returns which parts it names.
func slowCall(t *testing.T, log *lockedBuffer, call string) (line string, parts []string) {
	t.Helper()
	want := "call=" + call + " "
	eventually(t, "the log has "+call, func() bool { return log.contains(want) })
	line = log.line(want)
	for _, m := range regexp.MustCompile(`([a-z-]+)-ms=[0-9.]+`).FindAllStringSubmatch(line, -1) {
		parts = append(parts, m[1])
	}
	return line, parts
}

// checkSlow checks the line about a slow call: it names parts, and beside the sync, which may be
// over before the call asks for it to be known, and what took less than a microsecond, all.
func checkSlow(t *testing.T, log *lockedBuffer, call string, want ...string) {
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

// small may be nothing.
var small = map[string]bool{
	"queue": true, "checks": true, "commit": true, "apply": true,
	"log-sync": true,
}

// Goal: the log says of calls that take long what they waited for, whichever way they come, at the
// leader and at a follower, without keys. Method: every call takes long.
func TestSlowCalls(t *testing.T) { virtual.Test(t, testSlowCalls) }

func testSlowCalls(t *testing.T) {
	configs := clusterConfigs(t, 3)
	logs := make([]lockedBuffer, len(configs))
	byName := map[string]*lockedBuffer{}
	for i := range configs {
		configs[i] = allSlow(configs[i], &logs[i])
		byName[configs[i].Name] = &logs[i]
	}
	first, others := runLed(t, configs...) // who leads is to lead until the end
	written := []string{"commit", "log-sync", "apply"}
	for way, m := range map[string]*running{"queue": first, "forward": others[0]} {
		log := byName[m.cfg.Name]
		unbounded(m)
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

// Goal: when very many calls are slow, few of them have a line in a while, and the log says how
// many have none; and later there are lines again. Method: a window of virtual time, and one that
// the member's end cuts short.
func TestSlowCallsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		tr := &tracer{slow: newSlowLog(time.Nanosecond, slog.New(slog.NewTextHandler(&log, nil)))}
		call := func(n int) {
			for range n {
				(&tracedCall{tracer: tr, name: "/s/m", begun: sinceEpoch() - 1000}).End(nil)
			}
		}
		lines := func(calls int, left ...int) {
			t.Helper()
			if got := log.count("call=s/m "); got != calls {
				t.Errorf("%d lines, want %d", got, calls)
			}
			if got := log.count("left-out="); got != len(left) {
				t.Errorf("what is left out is told of %d times", got)
			}
			for _, n := range left {
				if !log.contains(fmt.Sprintf("left-out=%d\n", n)) {
					t.Errorf("%d calls are not left out: %s", n, log.text())
				}
			}
		}
		call(slowLines)
		time.Sleep(slowWindow)
		synctest.Wait()
		lines(slowLines) // nothing was left out
		call(slowLines + 7)
		lines(2 * slowLines)
		time.Sleep(slowWindow)
		synctest.Wait()
		lines(2*slowLines, 7)
		call(slowLines + 3)
		tr.slow.endWindow()
		lines(3*slowLines, 7, 3)
	})
}

// Goal: calls that take less than the limit are not logged, those that take longer are, and of
// those that wait for others only the time for which they ask the core counts. Method: calls with
// times that the test makes.
func TestSlowIsWhatTakesLong(t *testing.T) { virtual.Test(t, testSlowIsWhatTakesLong) }

func testSlowIsWhatTakesLong(t *testing.T) {
	const limit = int64(300 * time.Millisecond)
	for _, c := range []struct {
		name         string
		took, asking int64
		slow         bool
	}{
		{"/s/m", limit, 0, true},
		{"/s/m", limit - 1, limit - 1, false},
		{v3lockpb.Lock_Lock_FullMethodName, 100 * limit, limit - 1, false},
		{v3lockpb.Lock_Lock_FullMethodName, 100 * limit, limit, true},
	} {
		var log lockedBuffer
		tr := &tracer{slow: newSlowLog(time.Duration(limit), slog.New(slog.NewTextHandler(&log, nil)))}
		call := &tracedCall{tracer: tr, name: c.name, begun: 1}
		call.asking = c.asking
		tr.slow.look(call, 1+c.took, nil)
		if log.contains("call=") != c.slow {
			t.Errorf("%+v: %s", c, log.text())
		}
		tr.slow.endWindow()
	}
}

// Goal: a line has the parts of a call, each once, and the wait for caches is no part of the
// queue. Method: stages that the test makes.
func TestSlowParts(t *testing.T) { virtual.Test(t, testSlowParts) }

func testSlowParts(t *testing.T) {
	const unit = int64(time.Millisecond)
	var log lockedBuffer
	tr := &tracer{slow: newSlowLog(1, slog.New(slog.NewTextHandler(&log, nil)))}
	defer tr.slow.endWindow()
	begun := int64(1)
	at := func(n int64) int64 { return begun + n*unit }
	note := func(p *place, n int64) { p.note(5, span{at(n), at(n)}) }
	tr.log.leads = true
	note(&tr.log.appended, 100)
	tr.log.synced.note(5, span{at(101), at(140)})
	note(&tr.log.committed, 150)
	note(&tr.log.applied, 170)
	call := &tracedCall{tracer: tr, name: "/s/m", begun: begun}
	s := stages{call: call, asked: at(10)}
	tr.log.worked = span{begun, begun}
	s.of(&replica.Proposal{Index: 5, Wait: replica.CacheWait{For: 60, Until: 70}}, at(171))
	s.close(true, false)
	s = stages{call: call, asked: at(180)}
	s.of(&replica.Proposal{}, at(200))
	s.close(false, false)
	tr.slow.look(call, at(205), errors.New("secret"))
	const want = `msg="slow call" call=s/m took-ms=205 code=Unknown leader=true ` +
		"checks-ms=10 queue-ms=30 cache-wait-ms=60 commit-ms=50 log-sync-ms=39 " +
		"apply-ms=20 confirm-ms=20\n"
	if got := log.text(); !strings.HasSuffix(got, want) {
		t.Errorf("got  %swant %s", got, want)
	}
}

// Goal: the time of a call that the core has not answered is not taken for time in the queue.
// Method: a call that stops waiting after a while of virtual time.
func TestSlowWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		tr := &tracer{slow: newSlowLog(1, slog.New(slog.NewTextHandler(&log, nil)))}
		defer tr.slow.endWindow()
		call := &tracedCall{tracer: tr, name: "/s/m", begun: sinceEpoch()}
		s := stages{call: call, asked: call.begun}
		time.Sleep(2 * time.Second)
		s.close(true, true)
		call.End(errors.New("secret"))
		if got, want := log.text(), "code=Unknown no-answer-ms=2000\n"; !strings.HasSuffix(got, want) {
			t.Errorf("got  %swant %s", got, want)
		}
	})
}
