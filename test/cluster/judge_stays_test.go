package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The judges of what was held. Each returns all that is wrong, nil if nothing is.

// byFrom returns those stays that are of a thing, in the order in which they began.
func byFrom(list []*stay, is func(*stay) bool) (out []*stay) {
	for _, s := range list {
		if is(s) {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b *stay) int { return cmp.Compare(a.from, b.from) })
	return out
}

// byThing sorts out what is of each thing below a prefix.
func byThing(list []*stay, prefix string) map[string][]*stay {
	out := make(map[string][]*stay)
	for _, s := range byFrom(list, func(s *stay) bool { return strings.HasPrefix(s.what, prefix) }) {
		out[s.what] = append(out[s.what], s)
	}
	return out
}

// crowded says where more than so many had a thing at one time (L4).
func crowded(list []*stay, most int) error {
	var wrong []error
	var in []*stay
	for _, s := range list {
		in = slices.DeleteFunc(in, func(o *stay) bool { return o.till < s.from })
		if in = append(in, s); len(in) > most {
			wrong = append(wrong, fmt.Errorf("%d have what %d may: %v", len(in), most, in))
		}
	}
	return errors.Join(wrong...)
}

// beside says where a writer was not alone (L4).
func beside(list []*stay, writer string) error {
	var wrong []error
	var in []*stay
	for _, s := range list {
		in = slices.DeleteFunc(in, func(o *stay) bool { return o.till < s.from })
		for _, o := range in {
			if s.mode == writer || o.mode == writer {
				wrong = append(wrong, fmt.Errorf("a writer is not alone: %v, and %v", o, s))
			}
		}
		in = append(in, s)
	}
	return errors.Join(wrong...)
}

// unfenced says where tokens do not rise from holder to holder (L5).
func unfenced(list []*stay) error {
	var wrong []error
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; b.token <= a.token {
			wrong = append(wrong, fmt.Errorf("tokens do not rise: %v, then %v", a, b))
		}
	}
	return errors.Join(wrong...)
}

// hasty says where somebody had a thing too soon after somebody who did not give it back.
func hasty(list []*stay, quarantine time.Duration) error {
	var wrong []error
	for i := 1; i < len(list); i++ {
		a, b := list[i-1], list[i]
		if (a.ended == "" || a.ended == endClosed) && b.from < a.till+quarantine {
			wrong = append(wrong, fmt.Errorf("no quarantine between %v, and %v", a, b))
		}
	}
	return errors.Join(wrong...)
}

// unseen says who looked and did not see who had a thing all the while.
func unseen(notes []note, list []*stay) error {
	var wrong []error
	things := byThing(list, "")
	for _, n := range notes {
		if n.Verb != noteSight {
			continue
		}
		for _, s := range things[n.What] {
			if s.from <= n.From && n.At <= s.till && s.mark != n.Mark {
				wrong = append(wrong, fmt.Errorf("%s saw %x have %s between %v and %v, but %v (%x)",
					n.Who, n.Mark, n.What, n.From, n.At, s, s.mark))
			}
		}
	}
	return errors.Join(wrong...)
}

// sunk says where what only the holder of a thing may write went down: a smaller token over a
// larger one (L5).
func sunk(j journal) error {
	var wrong []error
	last := make(map[string]uint64)
	j.each(func(revision int64, e event) {
		if !strings.HasPrefix(e.key, fencedPrefix) {
			return
		}
		var token uint64
		if _, err := fmt.Sscan(e.value, &token); err != nil || token < last[e.key] {
			wrong = append(wrong, fmt.Errorf("revision %d: %s has %q after %d (%v)",
				revision, e.key, e.value, last[e.key], err))
		}
		last[e.key] = token
	})
	return errors.Join(wrong...)
}
