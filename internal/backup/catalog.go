package backup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"time"
)

// A target of backups has objects with these names:
//
//	leasehold.json                                        of which cluster all the others are
//	full/INDEX-TERM-REVISION-TIME.backup                  the whole state, as a file of backup
//	log/FIRST-LAST-BEFORE-TERM-REVISION-TIME-MEMBER.log   a piece of the log
//
// All but the first are never changed. INDEX, FIRST and LAST have twenty digits, so that
// names sort as they follow each other; BEFORE is the term of the entry before FIRST and TERM that
// of LAST; TIME is of the newest entry. What is not named so is not ours.
const (
	// ManifestName is the name of the object that says of which cluster the others are.
	ManifestName = "leasehold.json"
	// PartSuffix ends the names of objects that are being written, where those can be seen.
	PartSuffix = ".part"

	timeForm = "20060102T150405.000Z"
)

var (
	fullName  = regexp.MustCompile(`^full/(\d{20})-(\d+)-(\d+)-(\d{8}T\d{6}\.\d{3}Z)\.backup$`)
	pieceName = regexp.MustCompile(
		`^log/(\d{20})-(\d{20})-(\d+)-(\d+)-(\d+)-(\d{8}T\d{6}\.\d{3}Z)-([0-9a-f]{1,16})\.log$`)
)

// Object is what a target has under a name.
type Object struct {
	Name  string
	Bytes int64
}

// Full is a backup of the whole state.
type Full struct {
	Object
	Place
	Revision int64
	Time     time.Time
}

// FullName returns the name of a backup of the whole state.
func FullName(at Place, revision int64, t time.Time) string {
	return fmt.Sprintf("full/%020d-%d-%d-%s.backup", at.Index, at.Term, revision,
		t.UTC().Format(timeForm))
}

// PieceInfo is what the name of a piece of the log says of it.
type PieceInfo struct {
	Object
	First    uint64 // the index of the first entry
	Before   uint64 // the term of the entry before it
	Last     Place
	Revision int64 // the state after Last had at least this one
	Time     time.Time
	Member   uint64 // that copied it
}

// PieceName returns the name of a piece.
func PieceName(i PieceInfo) string {
	return fmt.Sprintf("log/%020d-%020d-%d-%d-%d-%s-%x.log", i.First, i.Last.Index, i.Before,
		i.Last.Term, i.Revision, i.Time.UTC().Format(timeForm), i.Member)
}

// Catalog is what a target has, as far as names tell.
type Catalog struct {
	Fulls  []Full      // the oldest first
	Pieces []PieceInfo // by their first entry, and then the longest first
	Others []Object    // that have no name of ours, and parts
}

// Catalogue sorts the objects of a target.
func Catalogue(objects []Object) (c Catalog) {
	for _, o := range objects {
		if m := fullName.FindStringSubmatch(o.Name); m != nil {
			if at, err := time.Parse(timeForm, m[4]); err == nil {
				c.Fulls = append(c.Fulls, Full{
					o, Place{number(m[1]), number(m[2])}, int64(number(m[3])), at,
				})
				continue
			}
		}
		if m := pieceName.FindStringSubmatch(o.Name); m != nil {
			if at, err := time.Parse(timeForm, m[6]); err == nil {
				member, _ := strconv.ParseUint(m[7], 16, 64) // at most 16 digits
				c.Pieces = append(c.Pieces, PieceInfo{
					Object: o, First: number(m[1]), Before: number(m[3]),
					Last: Place{number(m[2]), number(m[4])}, Revision: int64(number(m[5])),
					Time: at, Member: member,
				})
				continue
			}
		}
		if o.Name != ManifestName {
			c.Others = append(c.Others, o)
		}
	}
	sort.Slice(c.Fulls, func(i, j int) bool {
		a, b := &c.Fulls[i], &c.Fulls[j]
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Index, b.Index),
			cmp.Compare(a.Name, b.Name)) < 0
	})
	sort.Slice(c.Pieces, func(i, j int) bool {
		a, b := &c.Pieces[i], &c.Pieces[j]
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last.Index, a.Last.Index),
			cmp.Compare(a.Name, b.Name)) < 0
	})
	return c
}

// number reads digits, of which there may be too many for it: then it is the largest.
func number(digits string) uint64 {
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}

// Walk follows the pieces of a copied log. It begins with Catalog.Walk.
type Walk struct{ left, open []PieceInfo }

// Walk begins a way along the pieces.
func (c *Catalog) Walk() *Walk { return &Walk{left: c.Pieces} }

// Next returns the pieces that have the entry after a place and, as far as their names tell, that
// place before it: those of the newest terms first, and of those what reaches farthest. So the log
// of a cluster that has gone on without what it lost comes before what it lost. Terms never fall
// along a log. Places must not fall from call to call.
func (w *Walk) Next(at Place) (out []PieceInfo) {
	for len(w.left) > 0 && w.left[0].First <= at.Index+1 {
		w.open = append(w.open, w.left[0])
		w.left = w.left[1:]
	}
	w.open = slices.DeleteFunc(w.open, func(p PieceInfo) bool { return p.Last.Index <= at.Index })
	for _, p := range w.open {
		if p.Before == at.Term || p.First <= at.Index && p.Before < at.Term && p.Last.Term >= at.Term {
			out = append(out, p)
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		a, b := &out[i], &out[j]
		return cmp.Or(cmp.Compare(b.Last.Term, a.Last.Term), cmp.Compare(b.Last.Index, a.Last.Index),
			b.Time.Compare(a.Time)) < 0
	})
	return out
}

// Reach returns how far the copied log goes on without a gap after a place, as far as names tell,
// and the piece that ends there: its zero value if there is none.
func (c *Catalog) Reach(at Place) (Place, PieceInfo) {
	var last PieceInfo
	for w := c.Walk(); ; {
		next := w.Next(at)
		if len(next) == 0 {
			return at, last
		}
		at, last = next[0].Last, next[0]
	}
}

// Newest returns the newest backup of the whole state.
func (c *Catalog) Newest() (Full, bool) {
	if len(c.Fulls) == 0 {
		return Full{}, false
	}
	return c.Fulls[len(c.Fulls)-1], true
}

// Expired returns what may go when so many of the newest backups of the whole state are kept: the
// older ones, the pieces of the log before the oldest that is kept, and parts older than that. What
// is of a time after now, since a clock was ahead, goes by its place in the log.
func (c *Catalog) Expired(keep int, now time.Time) (names []string) {
	past := sort.Search(len(c.Fulls), func(i int) bool { return c.Fulls[i].Time.After(now) })
	if past <= keep {
		return nil
	}
	old, oldest, ahead := c.Fulls[:past-keep], c.Fulls[past-keep], c.Fulls[past:]
	for _, f := range old {
		names = append(names, f.Name)
	}
	for _, f := range ahead {
		if f.Index <= oldest.Index {
			names = append(names, f.Name)
		}
	}
	for _, p := range c.Pieces {
		if p.Last.Index <= oldest.Index && (!p.Time.After(oldest.Time) || p.Time.After(now)) {
			names = append(names, p.Name)
		}
	}
	return append(names, c.parts(oldest.Time)...)
}

// parts returns the names of objects whose writing was begun before a time and cut off.
func (c *Catalog) parts(before time.Time) (names []string) {
	for _, o := range c.Others {
		whole, isPart := cutPart(o.Name)
		if !isPart {
			continue
		}
		one := Catalogue([]Object{{Name: whole}})
		if len(one.Fulls) > 0 && one.Fulls[0].Time.Before(before) ||
			len(one.Pieces) > 0 && one.Pieces[0].Time.Before(before) {
			names = append(names, o.Name)
		}
	}
	return names
}

func cutPart(name string) (string, bool) {
	n := len(name) - len(PartSuffix)
	if n < 0 || name[n:] != PartSuffix {
		return "", false
	}
	return name[:n], true
}

// Superseded returns the pieces that are a beginning of one that the same member has copied: it
// replaces its newest piece by a longer one as long as that is short.
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

// ErrOtherCluster means that a target has backups of another cluster.
var ErrOtherCluster = errors.New("backup: it has the backups of another cluster")

// manifestFormat is what the format of a target is called.
const manifestFormat = "leasehold backups 1"

type manifest struct {
	Format  string `json:"format"`
	Cluster string `json:"cluster"`
}

// Manifest returns the contents of the object of that name.
func Manifest(cluster uint64) []byte {
	b, err := json.Marshal(manifest{manifestFormat, fmt.Sprintf("%016x", cluster)})
	if err != nil {
		panic(err) // two texts
	}
	return append(b, '\n')
}

// ReadManifest returns of which cluster the objects of a target are.
func ReadManifest(b []byte) (cluster uint64, err error) {
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return 0, fmt.Errorf("%w: %s: %w", ErrNotWhole, ManifestName, err)
	}
	if m.Format != manifestFormat {
		return 0, fmt.Errorf("%w: %s says that the format is %q, and this release reads %q",
			ErrNotWhole, ManifestName, m.Format, manifestFormat)
	}
	if cluster, err = strconv.ParseUint(m.Cluster, 16, 64); err != nil {
		return 0, fmt.Errorf("%w: %s: %w", ErrNotWhole, ManifestName, err)
	}
	return cluster, nil
}
