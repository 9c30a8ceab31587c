package backup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// at returns the time s seconds after a fixed time.
func at(s int) time.Time { return time.Date(2026, 1, 31, 12, 0, s, 5e6, time.UTC) }

func full(index, term uint64, s int) Object {
	return Object{Name: FullName(Place{index, term}, int64(index), at(s)), Bytes: 100}
}

// log returns a piece with entries first to last.
func log(first, before, last, term uint64, s int) Object {
	return Object{Name: PieceName(PieceInfo{
		First: first, Before: before, Last: Place{last, term}, Revision: int64(last), Time: at(s),
		Member: 0xab,
	}), Bytes: 10}
}

// TestCatalogue checks that names contain everything a catalog needs, and that objects with other
// names are left alone.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	strange := []Object{
		{Name: "README"},
		{Name: "full/1-1-1-20260131T120000.000Z.backup"},
		{Name: full(7, 1, 1).Name + ".part"},
		{Name: "log/x.log"},
		{Name: strings.Replace(full(7, 1, 1).Name, "20260131", "20261331", 1)},
	}
	c := Catalogue(append([]Object{
		full(20, 2, 9), full(10, 1, 5), log(11, 1, 15, 2, 7), log(11, 1, 18, 2, 8),
		{Name: ManifestName},
	}, strange...))
	if len(c.Fulls) != 2 || c.Fulls[0].Place != (Place{10, 1}) || !c.Fulls[0].Time.Equal(at(5)) ||
		c.Fulls[0].Revision != 10 || c.Fulls[0].Bytes != 100 {
		t.Errorf("of the whole state: %+v", c.Fulls)
	}
	if len(c.Pieces) != 2 || c.Pieces[0].Last != (Place{18, 2}) || c.Pieces[0].Before != 1 ||
		c.Pieces[0].First != 11 || c.Pieces[0].Member != 0xab || !c.Pieces[0].Time.Equal(at(8)) {
		t.Errorf("pieces: %+v", c.Pieces)
	}
	if !slices.Equal(c.Others, strange) {
		t.Errorf("others: %+v", c.Others)
	}
}

// TestReach checks that the copied log is followed from piece to piece, even if different members
// copied them, but not across a gap or into another generation of the cluster.
func TestReach(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		from Place
		log  []Object
		want Place
	}{
		{"nothing", Place{5, 1}, nil, Place{5, 1}},
		{"in a row", Place{5, 1}, []Object{log(6, 1, 8, 1, 1), log(9, 1, 12, 2, 2)}, Place{12, 2}},
		{"a gap", Place{5, 1}, []Object{log(6, 1, 8, 1, 1), log(10, 1, 12, 2, 2)}, Place{8, 1}},
		{"begins before", Place{5, 1}, []Object{log(2, 1, 8, 1, 1)}, Place{8, 1}},
		{"all before", Place{50, 1}, []Object{log(2, 1, 8, 1, 1)}, Place{50, 1}},
		{
			"they overlap",
			Place{5, 1},
			[]Object{log(6, 1, 9, 1, 1), log(6, 1, 7, 1, 1), log(8, 1, 14, 1, 3), log(10, 1, 11, 1, 2)},
			Place{14, 1},
		},
		{"another generation", Place{5, 2}, []Object{log(6, 1, 8, 1, 1)}, Place{5, 2}},
		{
			"one generation of two",
			Place{5, 3},
			[]Object{log(6, 1, 80, 1, 1), log(6, 3, 8, 3, 5), log(9, 1, 90, 1, 1)},
			Place{8, 3},
		},
	} {
		c := Catalogue(x.log)
		if got, last := c.Reach(x.from); got != x.want ||
			(last.Name != "") != (x.want != x.from) || last.Name != "" && last.Last != got {
			t.Errorf("%s: %v, %+v, want %v", x.name, got, last, x.want)
		}
	}
}

// TestReachIsQuick checks that a day's worth of pieces is followed in far less than quadratic time.
func TestReachIsQuick(t *testing.T) {
	t.Parallel()
	var all []Object
	const n = 50_000
	for i := range uint64(n) {
		all = append(all, log(i+1, 1, i+1, 1, 1))
	}
	c := Catalogue(all)
	if got, _ := c.Reach(Place{0, 1}); got.Index != n {
		t.Errorf("%v", got)
	}
}

// TestExpired checks that an object expires once it is no longer needed to restore from the oldest
// full backup that is kept, or from any later one.
func TestExpired(t *testing.T) {
	t.Parallel()
	part := Object{Name: full(3, 1, 0).Name + PartSuffix}
	c := Catalogue([]Object{
		full(10, 1, 10), full(20, 1, 20), full(30, 1, 30), part,
		{Name: "mine"},
		{Name: full(31, 1, 31).Name + PartSuffix},
		log(1, 1, 9, 1, 9), log(10, 1, 20, 1, 19), log(15, 1, 25, 1, 25), log(26, 1, 40, 1, 40),
		log(11, 9, 18, 9, 35), // from a later generation than the backup that is kept
	})
	for keep, want := range map[int][]Object{
		4: nil, 3: nil,
		2: {full(10, 1, 10), log(1, 1, 9, 1, 9), log(10, 1, 20, 1, 19), part},
		1: {
			full(10, 1, 10), full(20, 1, 20), log(1, 1, 9, 1, 9), log(10, 1, 20, 1, 19),
			log(15, 1, 25, 1, 25), part,
		},
	} {
		var names []string
		for _, o := range want {
			names = append(names, o.Name)
		}
		if got := c.Expired(keep, time.Now()); !slices.Equal(got, names) {
			t.Errorf("keep %d:\n%s\nwant\n%s", keep, strings.Join(got, "\n"), strings.Join(names, "\n"))
		}
	}
}

// TestClockAhead covers backups whose names carry a future time. Such a backup is never the newest
// and does not count toward the number kept. It expires together with the backups at its position
// in the log.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	now := at(50)
	early, late := full(12, 1, 900), full(35, 1, 900)
	c := Catalogue([]Object{
		full(10, 1, 10), full(20, 1, 20), full(30, 1, 30), early, late,
		{Name: full(13, 1, 900).Name + PartSuffix},
		{Name: full(36, 1, 900).Name + PartSuffix},
		log(11, 1, 20, 1, 900),
	})
	if f, ok := c.Newest(now); !ok || f.Index != 30 {
		t.Errorf("%+v, %v", f, ok)
	}
	want := []string{
		full(10, 1, 10).Name, early.Name, log(11, 1, 20, 1, 900).Name,
		full(13, 1, 900).Name + PartSuffix,
	}
	if got := c.Expired(2, now); !slices.Equal(got, want) {
		t.Errorf("%v\nwant\n%v", got, want)
	}
	c = Catalogue([]Object{early, late})
	if f, ok := c.Newest(now); ok {
		t.Errorf("%+v", f)
	}
	if got := c.Expired(1, now); got != nil {
		t.Errorf("%v", got)
	}
}

// TestSuperseded checks that a piece is superseded if a longer piece starts with the same entries.
// No entry is lost.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	c := Catalogue([]Object{
		log(1, 1, 5, 1, 1), log(1, 1, 8, 1, 2), log(1, 1, 9, 2, 3), log(10, 2, 12, 2, 4),
		log(11, 2, 20, 2, 5), log(10, 3, 11, 3, 6),
	})
	want := []string{log(1, 1, 8, 1, 2).Name, log(1, 1, 5, 1, 1).Name}
	if got := c.Superseded(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestWalk checks that Next returns the piece that reaches furthest first, followed by the others
// in case that one is damaged.
func TestWalk(t *testing.T) {
	t.Parallel()
	c := Catalogue([]Object{log(1, 1, 9, 1, 2), log(3, 1, 12, 1, 3), log(6, 1, 8, 1, 1)})
	w := c.Walk()
	var got []string
	for _, p := range w.Next(Place{5, 1}) {
		got = append(got, fmt.Sprint(p.First, "-", p.Last.Index))
	}
	if fmt.Sprint(got) != "[3-12 1-9 6-8]" {
		t.Errorf("%v", got)
	}
	if next := w.Next(Place{9, 1}); len(next) != 1 || next[0].First != 3 {
		t.Errorf("%v", next)
	}
}
