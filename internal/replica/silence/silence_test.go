package silence

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/lease"
)

// TestScenarios runs the scenarios in testdata, which show when members are probed, silent and
// lost, and how limits adapt. Each line has an instant and an event: a message, an answer or a
// look. "run" performs every look that the Watch requests, up to an instant. Run with -rewrite to
// update the files.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var p player
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p.t, p.out = t, nil
			if d.Cmd == "new" {
				p.w = New(Config{Heartbeat: 100, Most: 1000})
			}
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" {
					p.do(strings.Fields(line))
				}
			}
			if len(p.out) == 0 {
				return "ok\n"
			}
			return strings.Join(p.out, "\n") + "\n"
		})
	})
}

// player runs a scenario.
type player struct {
	t   *testing.T
	w   *Watch
	out []string
}

func (p *player) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) ids(words []string) (out []uint64) {
	for _, w := range words {
		out = append(out, uint64(p.number(w)))
	}
	return out
}

// do runs one line: an instant, a verb and its arguments.
func (p *player) do(words []string) {
	now := lease.Instant(p.number(words[0]))
	switch args := words[2:]; words[1] {
	case "watch":
		p.w.Advance(now)
		p.w.Follow(p.ids(args), now)
		p.look(now)
	case "heard", "answered":
		p.w.Advance(now)
		if id := uint64(p.number(args[0])); words[1] == "heard" {
			p.w.Received(id, now)
		} else {
			p.w.Answered(id, lease.TTL(p.number(args[1])), now)
		}
		p.look(now)
	case "look":
		p.w.Advance(now)
		p.look(now)
	case "run":
		end := lease.Instant(p.number(args[0]))
		for at, ok := p.w.Next(); ok && at <= end; at, ok = p.w.Next() {
			p.w.Advance(at)
			p.look(at)
		}
	case "beats": // heartbeats from a member every 100 ms, up to an instant
		for at := now + 100; at <= lease.Instant(p.number(args[1])); at += 100 {
			p.w.Advance(at)
			p.w.Received(uint64(p.number(args[0])), at)
			p.look(at)
		}
	case "forget":
		p.w.Forget(p.ids(args))
	case "states":
		for _, s := range p.w.States(now) {
			p.sayf("member %d: quiet for %d, limit %d, slowest answer %d", s.Member, s.Quiet, s.Limit,
				s.RoundTrip)
		}
	default:
		p.t.Fatalf("unknown verb %q", words[1])
	}
}

func (p *player) look(now lease.Instant) {
	news := p.w.Look(now)
	for _, id := range news.Ask {
		p.sayf("%d: ask %d", now, id)
	}
	for _, s := range news.Silent {
		p.sayf("%d: %d is silent, for %d of %d", now, s.Member, s.Quiet, s.Limit)
	}
	if news.Changed {
		for _, id := range p.w.watched {
			if p.w.Lost(id) {
				p.sayf("%d: %d is lost", now, id)
			}
		}
	}
}

func (p *player) sayf(format string, args ...any) {
	p.out = append(p.out, fmt.Sprintf(format, args...))
}

// TestNoMembers checks that a Watch without members has nothing to do, and can drop the
// measurements of removed members.
func TestNoMembers(t *testing.T) {
	w := New(Config{Heartbeat: 100, Most: 1000})
	w.Advance(1)
	w.Answered(7, 3, 1)
	if news := w.Look(10_000); len(news.Ask)+len(news.Silent) > 0 || news.Changed {
		t.Errorf("%+v", news)
	}
	if at, ok := w.Next(); ok {
		t.Errorf("next look at %d", at)
	}
	if w.Received(8, 1); len(w.States(1)) != 1 {
		t.Errorf("a message of an unknown member was measured: %+v", w.States(1))
	}
	if w.Forget(nil); len(w.States(1)) != 0 || w.Lost(7) {
		t.Errorf("after all were removed: %+v", w.States(1))
	}
}

// TestWorst checks that the largest of several measurements is used. Each measurement is remembered
// for at least the duration memory, and for less than twice that.
func TestWorst(t *testing.T) {
	type note struct {
		took lease.TTL
		at   lease.Instant
	}
	type want struct {
		at lease.Instant
		is lease.TTL
	}
	for _, x := range []struct {
		notes []note
		wants []want
	}{
		{[]note{{10, 1000}, {5, 2000}, {3, 3000}}, []want{{3000, 10}}},
		{[]note{{10, 0}, {1, memory}}, []want{
			{2*memory - 1, 10}, {2 * memory, 1}, {3*memory - 1, 1}, {3 * memory, 0},
		}},
		{[]note{{10, 0}, {2, memory - 1}}, []want{{2*memory - 1, 10}, {2 * memory, 0}}},
		{[]note{{10, 0}, {1, 2*memory - 1}}, []want{{2*memory - 1, 10}}},
		{[]note{{10, 0}, {1, 2 * memory}}, []want{{2 * memory, 1}}},
	} {
		var w worst
		for _, n := range x.notes {
			w.note(n.took, n.at)
		}
		for _, want := range x.wants {
			if got := w.at(want.at); got != want.is {
				t.Errorf("%v: %d at %d, want %d", x.notes, got, want.at, want.is)
			}
		}
	}
}

// TestFastHeartbeats checks that a member has 100 ms to answer, no matter how short the heartbeat
// interval is or how quickly it answered before.
func TestFastHeartbeats(t *testing.T) {
	w := New(Config{Heartbeat: 40, Most: 1000})
	w.Follow([]uint64{2}, 1)
	w.Answered(2, 1, 1)
	if got := w.States(1)[0].Limit; got != 60+leastWait {
		t.Errorf("limit %d, want %d", got, 60+leastWait)
	}
}

func TestLostIsFollowed(t *testing.T) {
	w := New(Config{Heartbeat: 100, Most: 1000})
	w.Follow([]uint64{2}, 1)
	w.Look(1)
	for at, ok := w.Next(); ok; at, ok = w.Next() {
		w.Advance(at)
		w.Look(at)
	}
	if !w.Lost(2) {
		t.Fatal("a followed member is not lost")
	}
	if w.Follow(nil, 5000); w.Lost(2) {
		t.Error("a member that is not followed is lost")
	}
}
