package fsm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/version"
)

// one, two and three are the versions supported by successive releases.
var (
	one   = version.Range{Oldest: 1, Newest: 1}
	two   = version.Range{Oldest: 1, Newest: 2}
	three = version.Range{Oldest: 2, Newest: 3}
	later = version.Range{Oldest: 3, Newest: 3}
	all   = version.Range{Oldest: 1, Newest: 3}
)

type ranges = []version.Range

var (
	unknown = version.Range{}

	free1, free2 = ClusterVersion{Number: 1}, ClusterVersion{Number: 2}
	held1        = ClusterVersion{Number: 1, Held: true}
	fell1        = ClusterVersion{Number: 1, Held: true, Fell: true}

	raise, hold = SetVersion{Version: 2}, SetVersion{Version: 1, Hold: true}
	let, both   = SetVersion{Version: 1}, SetVersion{Version: 2, Hold: true}
)

// members returns a state with members that support the given ranges, with IDs starting at 1.
func members(v ClusterVersion, ranges ...version.Range) *Machine {
	m := New(Config{})
	m.version = v
	for i, r := range ranges {
		m.AddMember(Member{ID: uint64(i + 1), Versions: r})
	}
	return m
}

// TestSetVersion checks when the cluster version can change. It rises only if it is not held and
// all members support the new version. It is lowered only together with a hold, and it can be held
// only if a member supports a newer version.
func TestSetVersion(t *testing.T) {
	for name, c := range map[string]struct {
		now     ClusterVersion
		members ranges
		set     SetVersion
		want    error
	}{
		"all speak the next":               {free1, ranges{two, two}, raise, nil},
		"one does not":                     {free1, ranges{two, one}, raise, ErrVersion},
		"of one nothing is known":          {free1, ranges{two, unknown}, raise, ErrVersion},
		"they overlap there":               {free1, ranges{two, three}, raise, nil},
		"one speaks only later ones":       {free1, ranges{two, three}, hold, ErrVersion},
		"it is held":                       {held1, ranges{two, two}, raise, ErrVersion},
		"a rise that holds":                {free1, ranges{two, two}, both, ErrVersion},
		"where all are newer":              {free1, ranges{all, all}, both, ErrVersion},
		"a fall":                           {free2, ranges{two, two}, hold, nil},
		"a fall that holds nothing":        {free2, ranges{two, two}, let, ErrVersion},
		"a fall below what one speaks":     {free2, ranges{two, three}, hold, ErrVersion},
		"a fall while a member is unknown": {free2, ranges{two, unknown}, hold, nil},
		"held where it is":                 {free1, ranges{two, one}, hold, nil},
		"held where none is newer":         {free1, ranges{one, one}, hold, ErrVersion},
		"held twice":                       {held1, ranges{two, one}, hold, ErrDowngrade},
		"let go":                           {held1, ranges{two, one}, let, nil},
		"let go after a fall":              {fell1, ranges{two, one}, let, nil},
		"let go twice":                     {free1, ranges{two, one}, let, ErrNoDowngrade},
		"let go and raised":                {held1, ranges{two, two}, raise, ErrVersion},
	} {
		m := members(c.now, c.members...)
		m.Begin(7, 1)
		before := m.View().Version
		foreseen := m.View().CheckSetVersion(&c.set)
		err := m.Apply(&c.set).Err
		want := c.now
		if c.want == nil {
			want = ClusterVersion{
				Number: c.set.Version, Held: c.set.Hold,
				Fell: c.set.Version < c.now.Number, Decided: 7,
			}
		}
		if !errors.Is(err, c.want) || !errors.Is(foreseen, c.want) || before != c.now ||
			m.Version() != want || m.View().Version != want {
			t.Errorf("%s: %v, and the version is %+v", name, err, m.Version())
		}
	}
}

// TestDueVersion checks that the leader raises the version once all members support a newer one.
// Once no member supports a newer one, the leader releases a version that was lowered, but not a
// version that is merely held.
func TestDueVersion(t *testing.T) {
	for name, c := range map[string]struct {
		now     ClusterVersion
		members ranges
		want    *SetVersion
	}{
		"all speak the next":      {free1, ranges{two, two}, &raise},
		"one does not":            {free1, ranges{one, two, two}, nil},
		"of one nothing is known": {free1, ranges{two, unknown}, nil},
		"it is held":              {held1, ranges{two, two}, nil},
		"held, and one is newer":  {held1, ranges{one, two}, nil},
		"held, and it went back":  {held1, ranges{one, one}, nil},
		"fell, and all are back":  {fell1, ranges{one, one}, &let},
		"fell, and not all are":   {fell1, ranges{one, two}, nil},
		"all is done":             {free2, ranges{two, two}, nil},
		"they overlap":            {free1, ranges{two, three}, &raise},
		"they do not overlap":     {free1, ranges{one, three}, nil},
		"two do not overlap":      {free1, ranges{two, later}, nil},
		"it does not fall":        {free2, ranges{one, one}, nil},
		"there is nobody":         {free1, nil, nil},
	} {
		m := members(c.now, c.members...)
		got := m.DueVersion()
		for range 32 { // map iteration order is random
			if got := m.DueVersion(); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if got != nil {
			m.Begin(1, 1)
			mustApply(t, m, got)
		}
	}
}

// TestBehind checks that Behind returns the members that keep the version from rising.
func TestBehind(t *testing.T) {
	for name, c := range map[string]struct {
		now     ClusterVersion
		members ranges
		want    []uint64
	}{
		"all speak the next":      {free1, ranges{two, two}, nil},
		"none does":               {free1, ranges{one, one}, nil},
		"one does not":            {free1, ranges{two, one, two}, []uint64{2}},
		"of one nothing is known": {free1, ranges{two, two, unknown}, []uint64{3}},
		"it is held":              {held1, ranges{two, one}, nil},
		"they do not overlap":     {free1, ranges{one, three}, []uint64{1}},
		"they are two apart":      {free2, ranges{two, three}, []uint64{1}},
	} {
		if got := members(c.now, c.members...).View().Behind(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestMemberOfAnotherVersion checks that a member that does not support the cluster version is
// rejected when it is added and when it starts.
func TestMemberOfAnotherVersion(t *testing.T) {
	m := members(ClusterVersion{Number: 1}, one)
	m.Begin(1, 1)
	for _, c := range []Command{
		&AddMember{Member{ID: 9, Versions: three}},
		&SetMember{Member{ID: 1, Name: "a", Versions: three}},
	} {
		if r := m.Apply(c); !errors.Is(r.Err, ErrVersion) {
			t.Errorf("%T: %v", c, r.Err)
		}
	}
	mustApply(t, m, &SetMember{Member{ID: 1, Versions: two}})
	mustApply(t, m, &SetMember{Member{ID: 1, Name: "b"}}) // does not mention versions
	if got, _ := m.View().Member(1); got.Versions != two || got.Name != "b" || len(m.members) != 1 {
		t.Errorf("members %+v", m.View().Members)
	}
}

// TestStateOfAnotherVersion checks that a release rejects a state whose version it does not
// support. It accepts a backup of an older version, because all members of the new cluster have
// this release.
func TestStateOfAnotherVersion(t *testing.T) {
	m := members(ClusterVersion{Number: 1, Held: true, Decided: 3}, one)
	whole := chunks(t, m)
	load := func(c Config, build func(Config, func() ([]byte, bool, error)) (*Machine, error),
	) (*Machine, error) {
		return build(c, source(whole...))
	}
	again, err := load(Config{}, Restore)
	if err != nil || again.Version() != m.Version() {
		t.Fatalf("%+v, %v", again, err)
	}
	fell := members(fell1, one)
	if again := restored(t, fell); again.Version() != fell1 {
		t.Errorf("%+v, not %+v", again.Version(), fell1)
	}
	_, err = load(Config{Versions: three}, Restore)
	if !errors.Is(err, encoding.ErrOlder) ||
		!strings.Contains(err.Error(), "is 0.1, but this release supports") {
		t.Errorf("a release that is too new: %v", err)
	}
	restored, err := load(Config{Versions: three},
		func(c Config, next func() ([]byte, bool, error)) (*Machine, error) {
			return RestoreBackup(c, Restoration{}, next)
		})
	if err != nil || restored.Version().Number != 2 || restored.Version().Held {
		t.Errorf("a backup: %v", err)
	}
	whole[0][1]++ // the byte after the header's tag
	if _, err := load(Config{Versions: two}, Restore); !errors.Is(err, encoding.ErrNewer) {
		t.Errorf("a snapshot of a later version: %v", err)
	}
	m.version.Number, m.cfg.Versions = 2, one
	if err := m.CheckVersion(); !errors.Is(err, encoding.ErrNewer) {
		t.Errorf("a release that is too old: %v", err)
	}
}

// TestVersionInHash checks that the hash includes the version, because members with different
// versions write different data.
func TestVersionInHash(t *testing.T) {
	a, err := members(ClusterVersion{Number: 1}).Image().Hash()
	b, err2 := members(ClusterVersion{Number: 1, Held: true}).Image().Hash()
	c, err3 := members(ClusterVersion{Number: 2}).Image().Hash()
	if err := errors.Join(err, err2, err3); err != nil || a == b || a == c || b == c {
		t.Errorf("%x %x %x %v", a, b, c, err)
	}
}

// TestHas checks that the newest cluster version includes every command that members can decode
// from the log.
func TestHas(t *testing.T) {
	for _, c := range samples() {
		if !Has(version.Newest, c) {
			t.Errorf("%T %+v is of a newer version", c, c)
		}
	}
	if _, err := DecodeEntry(encode(&SetVersion{})); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no version: %v", err)
	}
}
