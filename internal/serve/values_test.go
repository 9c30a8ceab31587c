package serve

import (
	"math"
	"strings"
	"testing"
	"time"

	"leasehold.dev/server"
)

// TestParseCluster checks that --initial-cluster is parsed as in etcd, including several URLs for
// one member.
func TestParseCluster(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{"", "", ""},
		{"a=http://a:1", "a=http://a:1", ""},
		{"b=http://b:1,a=http://a:1", "a=http://a:1,b=http://b:1", ""},
		{"a=http://z:1,a=http://b:1,a=http://z:1", "a=http://b:1,a=http://z:1", ""},
		{"a=unix://localhost:123456", "a=unix://localhost:123456", ""},
		{"a", "", "not NAME=URL"},
		{"=http://a:1", "", "not NAME=URL"},
		{"a=", "", "not NAME=URL"},
		{"a=http://a:1,", "", "not NAME=URL"},
		{"a=a:1", "", "scheme"},
		{"a=http://a:1,b=http://a:1", "", "members a and b have the same URL http://a:1"},
	} {
		got, err := parseCluster(c.in)
		if text := (members{&got}).String(); (err == nil) != (c.err == "") || text != c.want ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %q, %v", c.in, text, err)
		}
	}
}

// TestEndpointsFlag checks that --join and a relay's --endpoints normalize addresses and reject
// invalid ones.
func TestEndpointsFlag(t *testing.T) {
	var got []string
	f := endpoints{list{&got}}
	if err := f.Set("HTTP://h:1/, h:2,, h:2"); err != nil || f.String() != "http://h:1,h:2" {
		t.Errorf("endpoints %q, %v", got, err)
	}
	if err := f.Set("h:1,::1:2379"); err == nil || !strings.Contains(err.Error(), "[::1]:2379") {
		t.Errorf("an address without brackets: %v", err)
	}
}

// TestParseCompaction checks that retention follows etcd's rules: a bare number means hours or
// revisions, depending on the mode.
func TestParseCompaction(t *testing.T) {
	const max = math.MaxInt64
	for _, c := range []struct {
		mode, retention string
		want            server.Compaction
		err             string
	}{
		{"periodic", "0", server.Compaction{Mode: "periodic"}, ""},
		{"periodic", "1", server.Compaction{Mode: "periodic", Period: time.Hour}, ""},
		{"periodic", "90m", server.Compaction{Mode: "periodic", Period: 90 * time.Minute}, ""},
		{"periodic", "5s", server.Compaction{Mode: "periodic", Period: 5 * time.Second}, ""},
		{"periodic", "2562047", server.Compaction{Mode: "periodic", Period: 2562047 * time.Hour}, ""},
		{"revision", "0", server.Compaction{Mode: "revision"}, ""},
		{"revision", "1000", server.Compaction{Mode: "revision", Revisions: 1000}, ""},
		{"revision", "9223372036854775807", server.Compaction{Mode: "revision", Revisions: max}, ""},
		{"periodic", "2562048", server.Compaction{}, "out of range"}, // T24
		{"periodic", "-1", server.Compaction{}, "negative"},
		{"periodic", "-5m", server.Compaction{}, "negative"},
		{"periodic", "", server.Compaction{}, "neither"},
		{"periodic", "1d", server.Compaction{}, "neither"},
		{"revision", "5m", server.Compaction{}, "number of revisions"},
		{"revision", "-1", server.Compaction{}, "number of revisions"},
		{"", "1", server.Compaction{}, "must be periodic or revision"},
	} {
		got, err := parseCompaction(c.mode, c.retention)
		if got != c.want || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s %q: %+v, %v", c.mode, c.retention, got, err)
		}
	}
}

// The collector waits for a useful amount of garbage when the live heap is small, and for half the
// live heap when it is large.
func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 1600, 1 << 20: 1600, 8 << 20: 800, 64 << 20: 100, 128 << 20: 50, 1 << 40: 50,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes: %d%%, want %d%%", live, got, want)
		}
	}
	if differs(50, 50) || differs(54, 50) || !differs(60, 50) || !differs(40, 50) {
		t.Error("differs is wrong")
	}
}

// TestPercentTo checks that the first garbage collection after loading the state starts when the
// heap reaches its goal, even though the previous collection saw a smaller heap.
func TestPercentTo(t *testing.T) {
	for _, c := range []struct {
		goal, live uint64
		want       int
	}{
		{goal: 900 << 20, live: 300 << 20, want: 200},
		{goal: 900 << 20, live: 600 << 20, want: 50},
		{goal: 900 << 20, live: 890 << 20, want: 50},
		{goal: 100 << 20, live: 890 << 20, want: 50},
		{goal: 68 << 20, live: 0, want: 1600},
	} {
		if got := percentTo(c.goal, c.live); got != c.want {
			t.Errorf("%d MiB, %d alive: %d%%, want %d%%", c.goal>>20, c.live>>20, got, c.want)
		}
	}
}

// TestRest checks that memory is returned to the system once, after three seconds with almost no
// allocations, and only if there is enough to return.
func TestRest(t *testing.T) {
	const mb = 1 << 20
	var r rest
	h := heap{live: 400 * mb, resident: 600 * mb}
	seconds := func(want bool, allocated ...uint64) {
		t.Helper()
		for i, a := range allocated {
			h.allocated += a
			got := r.second(h)
			if last := i == len(allocated)-1; got != (want && last) {
				t.Fatalf("after %d seconds: %v", i+1, got)
			}
		}
	}
	seconds(false, 50*mb, 4*mb, mb, 5*mb, 0, mb)
	seconds(true, 0)
	h.resident = 460 * mb
	r.given(h)
	seconds(false, 0, 0, 0, 0, 0)
	h.resident += 100*mb - 1
	seconds(false, 0)
	h.resident++
	seconds(true, 0)
	r.given(h)
	h.live = 100 * mb // most of the state has been removed
	seconds(true, 0, 0, 0)
	h.resident = 110 * mb
	r.given(h)
	h.resident += 25 * mb
	seconds(true, 0, 0, 0)
	r = rest{}
	h = heap{live: mb, resident: 17*mb - 1}
	seconds(false, 0, 0, 0, 0)
	h.resident++
	seconds(true, 0)
}
