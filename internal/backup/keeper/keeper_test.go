package keeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
)

// TestFirstLeader checks that a leader with an empty target immediately makes a full backup and
// copies the log from there. A follower does nothing.
func TestFirstLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, follower := w.member(2, false)
		m, k := w.member(1, true)
		w.pass(every)
		w.raft.write(5, 1)
		w.pass(2 * every)
		fulls := w.fulls()
		if len(fulls) != 1 || fulls[0].Index != 10 || fulls[0].Revision != 1011 {
			t.Fatalf("%+v", fulls)
		}
		w.checkWhole(fulls[0], 15)
		s := k.Stats()
		if s.Fulls != 1 || s.Copied != 5 || s.Gaps != 0 || s.Lag != 0 || s.LastFull.IsZero() ||
			s.Due.Minute() != 0 || !s.Due.After(s.LastFull) || m.keeps() != 15 {
			t.Errorf("%+v, keeps %d", s, m.keeps())
		}
		if s := follower.Stats(); s.Fulls+s.Copied != 0 || !s.LastFull.IsZero() {
			t.Errorf("follower: %+v", s)
		}
	})
}

// TestSchedule checks that full backups are made on schedule, and that older backups and the log
// before them are removed.
func TestSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, k := w.member(1, true, func(c *Config) { c.Every = 10 * time.Second })
		for range 300 {
			w.raft.write(1, 1)
			w.pass(time.Minute)
		}
		fulls := w.fulls()
		if len(fulls) != 2 || fulls[1].Time.Sub(fulls[0].Time) != time.Hour ||
			fulls[1].Time.Truncate(time.Hour) != fulls[1].Time {
			t.Fatalf("%+v", fulls)
		}
		w.checkWhole(fulls[0], 310)
		c, _ := w.target.catalog(t)
		for _, p := range c.Pieces {
			if p.Last.Index <= fulls[0].Index {
				t.Errorf("a piece is no longer needed: %+v", p)
			}
		}
		if s := k.Stats(); s.Fulls != 6 || s.Copied != 300 {
			t.Errorf("%+v", s)
		}
	})
}

// TestClockAhead covers a full backup that is dated in the future because a leader's clock was
// ahead. It must neither stop the schedule nor hide that a backup is late.
func TestClockAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, _ := w.member(1, true)
		w.pass(every)
		ahead := backup.FullName(backup.Place{Index: 10, Term: 1}, 1011, time.Now().Add(9000*time.Hour))
		first := w.fulls()[0].Name
		w.target.mu.Lock()
		w.target.objects[ahead] = w.target.objects[first]
		w.target.mu.Unlock()
		a.lead(false)
		w.pass(2 * every)
		_, k := w.member(2, true)
		w.pass(2 * every)
		if s := k.Stats(); s.Fulls != 0 || !s.LastFull.Equal(w.fulls()[0].Time) ||
			time.Until(s.Due) > time.Hour {
			t.Errorf("%+v", s)
		}
		for range 5 {
			w.raft.write(1, 1)
			w.pass(time.Hour)
		}
		if s := k.Stats(); s.Fulls != 5 {
			t.Errorf("%+v", s)
		}
		if fulls := w.fulls(); len(fulls) != 2 || fulls[1].Time.After(time.Now()) ||
			time.Since(fulls[1].Time) > time.Hour {
			t.Errorf("kept: %+v", fulls)
		}
	})
}

// TestNextLeader checks that the next leader continues at the end of the previous leader's copy,
// even if both copy for a while.
func TestNextLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, _ := w.member(1, true)
		b, k := w.member(2, false)
		w.pass(every)
		w.raft.write(20, 1)
		w.pass(every)
		w.raft.write(20, 1) // member a may not have had time to copy this
		a.lead(false)
		w.raft.write(5, 2)
		w.pass(every)
		w.raft.write(20, 2)
		b.lead(true)
		w.pass(2 * every)
		a.lead(true) // although b is leading
		w.raft.write(20, 2)
		w.pass(2 * every)
		w.checkWhole(w.fulls()[0], 95)
		if s := k.Stats(); len(w.fulls()) != 1 || s.Gaps != 0 || s.Copied == 0 {
			t.Errorf("%+v, %d full backups", s, len(w.fulls()))
		}
		if a.lead(false); b.keeps() != 95 {
			t.Errorf("b keeps the log after %d, want 95", b.keeps())
		}
		w.pass(2 * every)
		if a.keeps() != 0 {
			t.Errorf("a keeps the log after %d, want none", a.keeps())
		}
	})
}

// TestFullBeforeLog covers a leader that makes a full backup but loses leadership before it has
// copied the log that far. The next leader copies from the end of the copied log, so there is no
// gap.
func TestFullBeforeLog(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, _ := w.member(1, true)
		w.pass(every)
		w.raft.write(5, 1)
		w.pass(2 * every)
		a.lead(false)
		w.pass(2 * every)
		w.raft.write(5, 1)
		name := backup.FullName(backup.Place{Index: 18, Term: 1}, 1019, time.Now())
		if err := w.target.Put(t.Context(), target.Bytes(name, []byte("state"))); err != nil {
			t.Fatal(err)
		}
		_, k := w.member(2, true)
		w.pass(2 * every)
		fulls := w.fulls()
		if s := k.Stats(); len(fulls) != 2 || s.Copied != 5 || s.Gaps != 0 {
			t.Errorf("%+v, %+v", fulls, s)
		}
		w.checkWhole(fulls[0], 20)
	})
}

// TestGap checks that a leader whose log does not continue the copy reports a gap and immediately
// makes a full backup. This happens if its log was compacted, has a different entry, or is shorter
// than the copy.
func TestGap(t *testing.T) {
	for name, gap := range map[string]func(w *world, a, b *member){
		"cut": func(w *world, _, b *member) { w.raft.write(20, 2); b.cut(30) },
		"another generation": func(w *world, _, b *member) {
			w.raft.mu.Lock()
			w.raft.terms = w.raft.terms[:18]
			w.raft.mu.Unlock()
			w.raft.write(10, 3)
		},
		"too short": func(w *world, _, b *member) {
			w.raft.mu.Lock()
			w.raft.terms = w.raft.terms[:15]
			w.raft.mu.Unlock()
			w.raft.write(1, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, _ := w.member(1, true)
				w.pass(every)
				w.raft.write(10, 1)
				w.pass(2 * every)
				a.lead(false)
				w.pass(2 * every)
				b, k := w.member(2, false)
				gap(w, a, b)
				at := uint64(len(w.raft.terms) - 1)
				b.lead(true)
				w.pass(2 * every)
				w.raft.write(5, 4)
				w.pass(2 * every)
				fulls := w.fulls()
				if len(fulls) != 2 || fulls[1].Index != at || k.Stats().Gaps != 1 {
					t.Fatalf("%+v, %+v", fulls, k.Stats())
				}
				w.checkWhole(fulls[1], at+5)
				if !strings.Contains(w.log.String(), "has a gap") {
					t.Errorf("the gap was not logged:\n%s", w.log)
				}
			})
		})
	}
}

// TestTargetFails checks that while the target fails, the member continues and keeps its log. It
// counts the failures and logs the first. When the target recovers, everything is copied with its
// original commit times.
func TestTargetFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m, k := w.member(1, true)
		w.pass(every)
		broken := errors.New("out of order")
		w.target.failing(func(context.Context, string, string) error { return broken })
		begin := time.Now()
		for range 100 {
			w.raft.write(1, 1)
			w.pass(6 * time.Second)
		}
		s := k.Stats()
		if lag := s.Lag; lag < 598*time.Second || lag > 600*time.Second || s.LogFailures < 20 ||
			s.LogFailures > 40 || m.keeps() != 10 {
			t.Errorf("%+v, keeps %d", s, m.keeps())
		}
		if why := k.Failing(); !strings.HasPrefix(why, "cannot copy the log, since 2000-01-01T") ||
			!strings.HasSuffix(why, ": out of order") {
			t.Errorf("Failing: %q", why)
		}
		w.target.failing(nil)
		w.pass(maxPause)
		if why := k.Failing(); why != "" {
			t.Errorf("Failing after the recovery: %q", why)
		}
		w.checkWhole(w.fulls()[0], 110)
		if s := k.Stats(); s.Lag != 0 || m.keeps() != 110 || s.Gaps != 0 {
			t.Errorf("%+v, keeps %d", s, m.keeps())
		}
		_, pieces := w.target.catalog(t)
		var marks []backup.Mark
		for _, p := range pieces {
			marks = append(marks, p.Marks...)
		}
		for i, x := range marks {
			late := time.UnixMilli(x.Milli).Sub(begin) - time.Duration(x.Index-11)*6*time.Second
			if x.Index != uint64(11+i) || late < 0 || late > every {
				t.Errorf("entry %d has a commit time %v late", x.Index, late)
			}
		}
		if text := w.log.String(); strings.Count(text, "out of order") != 1 ||
			!strings.Contains(text, "backups are working again") {
			t.Errorf("the log:\n%s", text)
		}
	})
}

// TestFullFails checks that a failed full backup is retried, and counts as overdue until it
// succeeds.
func TestFullFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.target.failing(func(_ context.Context, call, name string) error {
			if call == "get" && strings.HasPrefix(name, "full/") {
				return target.ErrDamaged
			}
			return nil
		})
		_, k := w.member(1, true)
		w.pass(10 * time.Minute)
		if s := k.Stats(); s.FullFailures < 10 || s.Fulls != 0 || time.Since(s.Due) < 9*time.Minute {
			t.Errorf("%+v", s)
		}
		w.target.failing(nil)
		w.pass(maxPause)
		if s := k.Stats(); s.Fulls != 1 || s.Due.Before(time.Now()) {
			t.Errorf("%+v", s)
		}
	})
}

// TestStall checks that a write to an unresponsive target is abandoned. Meanwhile, the log is still
// copied. Stopping the member does not wait for such a write.
func TestStall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.target.failing(func(ctx context.Context, call, name string) error {
			if call == "put" && strings.HasPrefix(name, "full/") {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		_, k := w.member(1, true)
		w.raft.write(10, 1)
		w.pass(stallLimit - time.Second)
		w.raft.write(10, 1)
		w.pass(2 * time.Second)
		if s := k.Stats(); s.FullFailures != 1 || s.Copied < 10 || s.Lag != 0 {
			t.Errorf("%+v", s)
		}
		if text := w.log.String(); !strings.Contains(text, "no bytes transferred for 1m0s") {
			t.Errorf("the log:\n%s", text)
		}
		w.stop() // the bubble ends only once all goroutines have ended
	})
}

// TestOtherCluster checks that nothing is written to a target that belongs to another cluster, or
// to the cluster that this one was restored from.
func TestOtherCluster(t *testing.T) {
	t.Run("another", func(t *testing.T) { otherCluster(t, backup.History{Cluster: 99}) })
	t.Run("restored", func(t *testing.T) { otherCluster(t, backup.History{Cluster: 7, Restore: 1}) })
}

func otherCluster(t *testing.T, h backup.History) {
	inBubble(t, func(t *testing.T, w *world) {
		if err := target.Claim(t.Context(), w.target, h); err != nil {
			t.Fatal(err)
		}
		_, k := w.member(1, true)
		w.raft.write(5, 1)
		w.pass(time.Minute)
		if c, _ := w.target.catalog(t); len(c.Fulls)+len(c.Pieces)+len(c.Others) > 0 {
			t.Errorf("%+v", c)
		}
		if s := k.Stats(); s.OpenFailures == 0 || s.Lag < 50*time.Second {
			t.Errorf("%+v", s)
		}
		if text := w.log.String(); !strings.Contains(text, "level=ERROR") ||
			!strings.Contains(text, "another cluster") {
			t.Errorf("the log:\n%s", text)
		}
	})
}

// TestPiecesGrow checks that a short piece is replaced by a longer one, which keeps the number of
// objects small. No object is modified, and a piece is removed only after its replacement has been
// read back.
func TestPiecesGrow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.member(1, true)
		w.pass(every)
		for range 2*growFor + 10 {
			w.raft.write(1, 1)
			w.pass(every)
		}
		w.pass(every)
		c, _ := w.target.catalog(t)
		if len(c.Pieces) != 3 {
			t.Errorf("%d pieces", len(c.Pieces))
		}
		w.checkWhole(w.fulls()[0], 2*growFor+20)
		names := slices.Sorted(slices.Values(w.target.deleted))
		if len(names) != 2*growFor+10-3 || len(slices.Compact(names)) != 2*growFor+10-3 {
			t.Errorf("%d removed", len(names))
		}
	})
}

// TestBacklog checks that a large backlog is copied in pieces of limited size.
func TestBacklog(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, k := w.member(1, true)
		w.pass(every)
		w.raft.padded(1 << 20)
		w.raft.write(20, 1)
		w.pass(2 * every)
		c, _ := w.target.catalog(t)
		if len(c.Pieces) != 3 || k.Stats().Copied != 20 {
			t.Errorf("%d pieces, %+v", len(c.Pieces), k.Stats())
		}
		w.checkWhole(w.fulls()[0], 30)
		for _, p := range c.Pieces {
			if p.Bytes > maxPiece+1<<16 {
				t.Errorf("%d bytes", p.Bytes)
			}
		}
	})
}

func TestParseSchedule(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"0 3 * * *":                       "2026-02-01T03:00:00Z",
		"@hourly":                         "2026-01-31T13:00:00Z",
		"@every 90m":                      "2026-01-31T13:30:00Z",
		"CRON_TZ=Asia/Kolkata 30 0 * * *": "2026-01-31T19:00:00Z",
	} {
		s, err := parseSchedule(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := s.Next(from).UTC().Format(time.RFC3339); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"": "not a schedule", "daily": "not a schedule", "61 * * * *": "not a schedule",
		"* * * * * *": "not a schedule", "0 0 31 2 *": "never fires",
	} {
		if _, err := parseSchedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
