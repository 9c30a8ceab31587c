package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// each tells the events of a journal in their order.
func (j journal) each(tell func(revision int64, e event)) {
	for _, revision := range slices.Sorted(maps.Keys(j)) {
		for _, e := range j[revision] {
			tell(revision, e)
		}
	}
}

// A sighting is what an observer of the election is told: who leads from a revision on, by the
// revision that made its key, and what it proclaims.
type sighting struct {
	revision, since int64
	value           string
}

// leaders returns what an observer from the beginning is to be told.
func leaders(j journal) []sighting {
	prefix := usedPrefix + theElection + "/"
	type place struct {
		since int64
		value string
	}
	line := make(map[string]place)
	told := []sighting{{}}
	for _, revision := range slices.Sorted(maps.Keys(j)) {
		for _, e := range j[revision] {
			switch p, there := line[e.key]; {
			case !strings.HasPrefix(e.key, prefix):
			case e.gone:
				delete(line, e.key)
			case there:
				line[e.key] = place{p.since, e.value}
			default:
				line[e.key] = place{revision, e.value}
			}
		}
		now := sighting{revision: revision}
		for _, p := range line {
			if now.since == 0 || p.since < now.since {
				now.since, now.value = p.since, p.value
			}
		}
		if last := told[len(told)-1]; now.since != last.since || now.value != last.value {
			told = append(told, now)
		}
	}
	return told
}

// overlooked says which observers were not told all that there was to be told since they began,
// once and in order.
func overlooked(notes []note, j journal) error {
	all := leaders(j)
	var wrong []error
	for name, list := range byWatch(notes, noteLeader) {
		// It begins with what was so at a revision, which may be that of something else.
		first := list[0].Revision
		at := 0
		for at+1 < len(all) && all[at+1].revision <= first {
			at++
		}
		for i, n := range list {
			got := sighting{n.Revision, n.Mark, n.Text}
			if at+i >= len(all) {
				wrong = append(wrong, fmt.Errorf("observer %s: %+v, after the end", name, got))
				break
			}
			want := all[at+i]
			if i == 0 {
				want.revision = first
			}
			if got != want {
				wrong = append(wrong, fmt.Errorf("observer %s, %d: %+v, want %+v", name, i, got, want))
				break
			}
		}
	}
	return errors.Join(wrong...)
}

// byWatch sorts out the notes of each watch, in their order.
func byWatch(notes []note, verb string) map[string][]note {
	out := make(map[string][]note)
	for _, n := range notes {
		if n.Verb == verb {
			out[n.What] = append(out[n.What], n)
		}
	}
	return out
}

// A change is what a watch of the group is to be told.
type change struct {
	revision int64
	how      string
	lease    int64
	member   string // its ID and metadata
}

// changes returns what happened in the group, and who was there after it all, as joined.
// Why somebody went is not in a journal: that is "gone" here.
func changes(j journal, upTo int64) (list []change, there map[string]change) {
	prefix := usedPrefix + theGroup + "/"
	there = make(map[string]change)
	j.each(func(revision int64, e event) {
		id, ok := strings.CutPrefix(e.key, prefix)
		if !ok || revision > upTo {
			return
		}
		c := change{revision, "joined", e.lease, id + "=" + e.value}
		old, was := there[id]
		switch {
		case e.gone:
			c = change{revision, "gone", old.lease, old.member}
			delete(there, id)
		case was:
			c.how = "updated"
			fallthrough
		default:
			there[id] = change{lease: c.lease, member: c.member}
		}
		list = append(list, c)
	})
	return list, there
}

// misled says which watches of the group were told something else than what happened since
// they began, or were told that somebody left who did not.
func misled(notes []note, j journal) error {
	leaving := make(map[int64]bool)
	for _, n := range notes {
		if n.Verb == noteLeaving {
			leaving[n.Lease] = true
		}
	}
	all, _ := changes(j, 1<<62)
	var wrong []error
	for name, list := range byWatch(notes, noteMember) {
		var got []change
		for _, n := range list {
			c := change{n.Revision, n.Mode, n.Mark, n.Text}
			switch c.how {
			case "left":
				if !leaving[c.lease] {
					wrong = append(wrong, fmt.Errorf("watch %s: %+v, and it did not", name, c))
				}
				c.how = "gone"
			case "failed", "revoked":
				c.how = "gone"
			case "gone":
				c.how = "gone for an unknown reason" // nothing is compacted here
			}
			got = append(got, c)
		}
		if err := follows(got, all, j); err != nil {
			wrong = append(wrong, fmt.Errorf("watch %s: %w", name, err))
		}
	}
	return errors.Join(wrong...)
}

// follows says why a watch of the group is not right. It begins with the members that are there
// then, as joined, in the order of their names.
func follows(got, all []change, j journal) (err error) {
	for n := 0; n <= len(got); n++ {
		if n > 0 && (got[n-1].how != "joined" ||
			n > 1 && got[n-1].member[0] <= got[n-2].member[0]) {
			break // no more are of the beginning: each name is one byte
		}
		if err = followsAfter(n, got, all, j); err == nil {
			return nil
		}
	}
	return err
}

// followsAfter says so if the first n are of the beginning.
func followsAfter(n int, got, all []change, j journal) error {
	if n == len(got) {
		return nil // what came later was not told yet
	}
	at := slices.IndexFunc(all, func(c change) bool { return c.revision >= got[n].revision })
	_, there := changes(j, got[n].revision-1)
	if len(there) != n {
		return fmt.Errorf("%d were there before %+v, told %d", len(there), got[n], n)
	}
	for _, c := range got[:n] {
		if there[c.member[:1]] != (change{lease: c.lease, member: c.member}) {
			return fmt.Errorf("%+v was there, told %+v", there[c.member[:1]], c)
		}
	}
	for i, c := range got[n:] {
		if at < 0 || at+i >= len(all) || all[at+i] != c {
			return fmt.Errorf("change %d: told %+v, want %+v", n+i, c, all[max(at, 0):][:min(i+1, 3)])
		}
	}
	return nil
}
