package storage

import (
	"maps"
	"reflect"
	"testing"
)

// Goal: what a member remembers of the others is there after a restart. Method: save it twice,
// open the directory again after each.
func TestPeers(t *testing.T) {
	dir := t.TempDir()
	d := mustOpen(t, Config{Dir: dir})
	if got := d.Peers(); got.Assembled || len(got.Incarnations) > 0 {
		t.Errorf("an empty directory knows %+v", got)
	}
	if err := d.Bootstrap(Identity{Cluster: 1, Member: 2, Incarnation: 1 << 63}, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Peers{
		{Incarnations: map[uint64]uint64{3: 1 << 63, 1 << 63: 4}},
		{Assembled: true, Incarnations: map[uint64]uint64{3: 5}},
	} {
		if err := d.SavePeers(want); err != nil {
			t.Fatal(err)
		}
		kept := want
		kept.Incarnations = maps.Clone(want.Incarnations)
		want.Incarnations[9] = 9 // what was saved is a copy, and so is what is told
		d.Peers().Incarnations[8] = 8
		if got := d.Peers(); !reflect.DeepEqual(got, kept) {
			t.Errorf("it knows %+v, not %+v, before a restart", got, kept)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = mustOpen(t, Config{Dir: dir})
		if got := d.Peers(); !reflect.DeepEqual(got, kept) {
			t.Errorf("it knows %+v, not %+v", got, kept)
		}
		if id, _ := d.Identity(); id.Incarnation != 1<<63 {
			t.Errorf("its incarnation is %x", id.Incarnation)
		}
	}
}
