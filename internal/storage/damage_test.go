package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/tier"
)

// TestDamage checks that Open detects or tolerates random damage: flipped bits, and sectors and
// blocks that are zeroed, reverted to older contents (a lost write), or overwritten with misplaced
// data. Either all acknowledged data is there, or Open returns an error.
func TestDamage(t *testing.T) {
	count := map[string]int{}
	for seed := range uint64(tier.Budget(60, 3000)) {
		damageOne(t, uint64(*firstSeed)+seed, count)
	}
	t.Log(count)
	if count["refused"] < 20 || count["starts"] < 20 {
		t.Error("too little damage was found or tolerated")
	}
}

func damageOne(t *testing.T, seed uint64, count map[string]int) {
	r := &run{
		t: t, rng: rand.New(rand.NewPCG(seed, 11)), states: []*model{{}}, count: map[string]int{},
		trace: []string{fmt.Sprint("seed ", seed)}, fs: crashfs.New(), calls: 1 << 30,
	}
	var err error
	if r.disk, err = storage.Open(r.config()); err != nil {
		t.Fatal(err)
	}
	var before *crashfs.FS
	for n := range 20 + r.rng.IntN(150) {
		if n%8 == 0 {
			before = r.fs.Clone()
		}
		r.step()
		r.calls = 1 << 30
	}
	r.fs.Limit(0)
	if err := r.disk.AddEmpty(); err != nil {
		t.Fatal(err)
	}
	left := r.fs.Clone()
	if r.rng.IntN(2) == 0 {
		fatal(t, r.disk.Close())
		left = r.fs.Clone()
	}
	all, then := contents(t, left), contents(t, before)
	names := slices.Sorted(maps.Keys(all))
	for range 30 {
		name := names[r.rng.IntN(len(names))]
		b := slices.Clone(all[name])
		size := []int{1, 512, 4096}[r.rng.IntN(3)]
		if len(b) < size {
			continue
		}
		at := r.rng.IntN(len(b)/size) * size
		if used := bytes.TrimRight(b, "\x00"); r.rng.IntN(4) > 0 && len(used) > size {
			// only the used part, because most of a segment is empty
			at = r.rng.IntN(len(used)/size) * size
		}
		what := "zeros"
		switch from := all[names[r.rng.IntN(len(names))]]; {
		case size == 1:
			what = "a flipped bit"
			b[at] ^= 1 << r.rng.IntN(8)
		case r.rng.IntN(3) == 0:
			clear(b[at : at+size])
		case len(then[name]) >= at+size && r.rng.IntN(2) == 0:
			what = "older contents"
			copy(b[at:], then[name][at:at+size])
		case len(from) >= at+size:
			what = "contents of another file"
			copy(b[at:], from[at:at+size])
		default:
			continue
		}
		files := left.Clone()
		put(t, files, name, b)
		refused, err := verdict(files, r.now())
		if err != nil {
			r.failf("%s, %d bytes at %d: %s: %v", name, size, at, what, err)
		}
		if !refused && strings.Contains(name, "identity") && !bytes.Equal(b, all[name]) {
			r.failf("%s, %d bytes at %d: %s: not found", name, size, at, what)
		}
		count[what]++
		count[map[bool]string{true: "refused", false: "starts"}[refused]]++
	}
	if err := r.disk.Close(); err != nil && !errors.Is(err, storage.ErrFailed) {
		t.Error(err)
	}
}
