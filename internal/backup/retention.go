package backup

import (
	"slices"
	"strings"
	"time"
)

// Expired returns the names of the objects that can be removed if the newest keep full backups are
// kept. These are older full backups, pieces of the log that end before the oldest backup kept, and
// unfinished objects older than that backup. A full backup with a time after now does not count
// toward keep; its place in the log determines whether it has expired.
func (c *Catalog) Expired(keep int, now time.Time) (names []string) {
	i := len(c.Fulls)
	for counted := 0; counted < keep && i > 0; {
		i--
		if !c.Fulls[i].Time.After(now) {
			counted++
		}
	}
	if !slices.ContainsFunc(c.Fulls[:i], func(f Full) bool { return !f.Time.After(now) }) {
		return nil
	}
	oldest := c.Fulls[i]
	for _, f := range c.Fulls[:i] {
		names = append(names, f.Name)
	}
	old := func(last Place, t time.Time) bool {
		return last.Index <= oldest.Index && (!t.After(oldest.Time) || t.After(now))
	}
	for _, p := range c.Pieces {
		if old(p.Last, p.Time) {
			names = append(names, p.Name)
		}
	}
	for _, o := range c.Others {
		whole, isPart := strings.CutSuffix(o.Name, PartSuffix)
		one := Catalogue([]Object{{Name: whole}})
		if isPart && (len(one.Fulls) > 0 && old(one.Fulls[0].Place, one.Fulls[0].Time) ||
			len(one.Pieces) > 0 && old(one.Pieces[0].Last, one.Pieces[0].Time)) {
			names = append(names, o.Name)
		}
	}
	return names
}

// Superseded returns the pieces that are a prefix of another piece from the same member. While a
// member's newest piece is short, the member replaces it with a longer one.
func (c *Catalog) Superseded() (names []string) {
	for i := 1; i < len(c.Pieces); i++ {
		a, b := c.Pieces[i-1], c.Pieces[i]
		if a.First == b.First && a.Before == b.Before && a.Member == b.Member &&
			a.Last.Index > b.Last.Index && b.Last.Term <= a.Last.Term && !b.Time.After(a.Time) {
			names = append(names, b.Name)
		}
	}
	return names
}
