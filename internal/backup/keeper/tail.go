package keeper

import (
	"context"
	"fmt"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
)

const (
	// maxPiece is the approximate maximum size of a piece of the log. A single entry can be larger.
	maxPiece = 8 << 20
	// growTo is the size at which a piece is complete. Until then, the piece is rewritten with the
	// new entries under a different name, and the previous version is removed. This avoids both a
	// large number of objects and objects that change.
	growTo = 1 << 20
	// growFor is the maximum number of times that a piece is written.
	growFor = 240
)

// tail copies the log while this member leads. It belongs to one goroutine.
type tail struct {
	*Keeper
	full chan backup.Place // requests a full backup at this place or later; capacity 1

	end      backup.Place // end of the copied log
	revision int64        // lower bound on the revision of the state at end
	seen     uint64       // index of the newest mark

	piece   backup.Piece // the newest piece
	bytes   int
	written int    // number of times the piece was written
	name    string // name of the piece's object; "" if it has not been written
	stale   []string
}

// open claims the target and finds the end of the copied log.
func (t *tail) open(ctx context.Context) bool {
	var c backup.Catalog
	ok := t.retry(ctx, opening, func() (err error) {
		t.mark(time.Now())
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		defer cancel()
		if err := target.Claim(ctx, t.cfg.Target, t.cfg.Source.History()); err != nil {
			return err
		}
		c, err = t.catalog(ctx)
		return err
	})
	if !ok {
		return false
	}
	t.stale = c.Superseded()
	if len(c.Fulls) == 0 {
		t.log.Info("no full backup yet: making one",
			"target", t.cfg.Target.String())
		t.restart()
		return true
	}
	now := time.Now()
	newest, _ := c.Newest(now) // if there is none, a backup is due immediately
	if last := c.Fulls[len(c.Fulls)-1]; last.Time.After(now) {
		t.log.Warn("ignoring a full backup with a time in the future: the clock of the member "+
			"that made it was ahead, or this member's is behind",
			"target", t.cfg.Target.String(), "name", last.Name, "newest", newest.Name)
	}
	t.setNewest(newest.Time)
	end, revision := t.resume(&c)
	t.resumeAt(end, revision)
	if why := t.gap(end); why != "" {
		t.handleGap(why)
	} else {
		t.log.Info("making backups: resuming the log backup where it left off",
			"target", t.cfg.Target.String(), "index", end.Index)
	}
	return true
}

// resume returns where to continue. For each full backup, it finds the end of the copied log after
// that backup. It picks the first of these ends that this member's log can continue. The newest
// full backup may be later than that end, because its leader may have lost leadership before it had
// copied the log that far.
func (t *tail) resume(c *backup.Catalog) (end backup.Place, revision int64) {
	for _, f := range c.Fulls {
		at, last := c.Reach(f.Place)
		end, revision = at, max(f.Revision, last.Revision)
		if t.gap(end) == "" {
			break
		}
	}
	return end, revision
}

// resumeAt sets the place at which copying continues.
func (t *tail) resumeAt(at backup.Place, revision int64) {
	t.end, t.revision, t.seen = at, revision, at.Index
	t.piece, t.name, t.bytes, t.written = backup.Piece{}, "", 0, 0
	if last, ok := t.dropMarks(at.Index); ok {
		t.seen = last.Index
	}
	t.cfg.Source.Keep(at.Index)
}

// restart makes the copy start at the current state, and requests a full backup of that state.
func (t *tail) restart() {
	t.resumeAt(t.cfg.Source.Applied())
	select {
	case <-t.full: // discard an earlier request
	default:
	}
	t.full <- t.end
}

// gap returns the reason why this member's log does not continue the copy, or "" if it does.
func (t *tail) gap(end backup.Place) string {
	switch term, ok := t.cfg.Source.TermAt(end.Index); {
	case !ok:
		return fmt.Sprintf("this member's log does not contain entry %d, the last one in the copy",
			end.Index)
	case term != end.Term:
		return fmt.Sprintf("entry %d has term %d, but term %d in the copy: the cluster "+
			"lost entries and continued without them", end.Index, term, end.Term)
	}
	return ""
}

// handleGap reports a gap and restarts the copy.
func (t *tail) handleGap(why string) {
	t.update(func(s *Stats) { s.Gaps++ })
	from := t.end.Index
	t.restart()
	t.log.Warn("the log backup has a gap: making a full backup and continuing from there; "+
		"points in time within the gap cannot be restored", "why", why, "from-index", from,
		"to-index", t.end.Index)
}

// run copies the log until ctx ends.
func (t *tail) run(ctx context.Context) {
	tick := time.NewTicker(t.cfg.Every)
	defer tick.Stop()
	var again time.Time // time of the next attempt after a failure
	pause := time.Duration(0)
	for {
		t.mark(time.Now())
		if !time.Now().Before(again) {
			if err := t.copy(ctx); ctx.Err() != nil {
				return
			} else if err != nil {
				t.failed(copying, err)
				pause = min(max(2*pause, minPause), maxPause)
				again = time.Now().Add(pause)
			} else {
				t.succeeded(copying)
				pause = 0
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// mark records the current time as the commit time of new entries.
func (t *tail) mark(now time.Time) {
	at, _ := t.cfg.Source.Applied()
	if at.Index <= t.seen {
		return
	}
	t.seen = at.Index
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marks = append(t.marks, backup.Mark{Index: at.Index, Milli: now.UnixMilli()})
	if n := len(t.marks); n > maxMarks {
		thin := t.marks[:0]
		for i, m := range t.marks {
			if (n-1-i)%2 == 0 { // keeps the newest mark
				thin = append(thin, m)
			}
		}
		t.marks = thin
	}
}

// copy copies all entries up to the newest mark.
func (t *tail) copy(ctx context.Context) error {
	for t.end.Index < t.seen {
		if why := t.gap(t.end); why != "" {
			t.handleGap(why)
			return nil
		}
		if t.bytes >= growTo || t.written >= growFor || len(t.piece.Entries) == 0 {
			t.piece = backup.Piece{History: t.cfg.Source.History(), Previous: t.end}
			t.bytes, t.written, t.name = 0, 0, ""
		}
		entries, err := t.cfg.Source.Entries(t.end.Index+1, t.seen, max(maxPiece-t.bytes, 1))
		if err != nil {
			if t.gap(t.end) != "" {
				continue // the log has just been compacted
			}
			return err
		}
		if err := t.write(ctx, entries); err != nil {
			return err
		}
	}
	return t.sweep(ctx)
}

// write rewrites the newest piece with additional entries.
func (t *tail) write(ctx context.Context, entries []backup.Entry) error {
	p := t.piece
	p.Entries = append(p.Entries[:len(p.Entries):len(p.Entries)], entries...)
	last := p.Last()
	revision := t.revision
	if at, r := t.cfg.Source.Applied(); at.Index == last.Index {
		revision = r
	}
	p.Marks = append(p.Marks[:len(p.Marks):len(p.Marks)], t.marksTo(last.Index)...)
	name := backup.PieceName(backup.PieceInfo{
		First: p.Previous.Index + 1, Before: p.Previous.Term, Last: last, Revision: revision,
		Time: time.UnixMilli(p.Marks[len(p.Marks)-1].Milli), Member: t.cfg.Member,
	})
	ctx, w := watchStall(ctx)
	defer w.stop()
	c := target.Bytes(name, p.Encode())
	c.Write = w.wrap(c.Write)
	if err := target.Store(ctx, w.target(t.cfg.Target), c); err != nil {
		return w.explain(err)
	}
	if t.name != "" {
		t.stale = append(t.stale, t.name)
	}
	for i := range entries {
		t.bytes += len(entries[i].Data) + 16
	}
	t.piece, t.name, t.end, t.revision = p, name, last, revision
	t.written++
	t.cfg.Source.Keep(last.Index)
	t.update(func(s *Stats) { s.Copied += uint64(len(entries)) })
	t.dropMarks(last.Index)
	return nil
}

// dropMarks drops the marks up to an index that has been copied, and returns the newest remaining
// one.
func (t *tail) dropMarks(index uint64) (newest backup.Mark, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.marks) > 0 && t.marks[0].Index <= index {
		t.marks = t.marks[1:]
	}
	if n := len(t.marks); n > 0 {
		return t.marks[n-1], true
	}
	return backup.Mark{}, false
}

// marksTo returns the marks up to an index. The last one is at exactly that index.
func (t *tail) marksTo(index uint64) (out []backup.Mark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.marks {
		if m.Index >= index {
			return append(out, backup.Mark{Index: index, Milli: m.Milli})
		}
		out = append(out, m)
	}
	panic("keeper: entries were copied before they were committed")
}

// sweep removes pieces that longer pieces have replaced.
func (t *tail) sweep(ctx context.Context) error {
	for len(t.stale) > 0 {
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		err := t.cfg.Target.Delete(ctx, t.stale[0])
		cancel()
		if err != nil {
			return fmt.Errorf("remove %s: %w", t.stale[0], err)
		}
		t.stale = t.stale[1:]
	}
	return nil
}
