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

// A backup target has objects with these names:
//
//	leasehold.json                                        the history that all the others belong to
//	full/INDEX-TERM-REVISION-TIME.backup                  the whole state, as a backup file
//	log/FIRST-LAST-BEFORE-TERM-REVISION-TIME-MEMBER.log   a piece of the log
//
// All objects but the first are immutable. INDEX, FIRST and LAST have twenty digits, so that names
// sort in order. BEFORE is the term of the entry before FIRST, and TERM is the term of LAST. TIME
// is the time of the newest entry. Objects with other names do not belong to Leasehold.
const (
	// ManifestName is the name of the object that records which history the other objects belong
	// to.
	ManifestName = "leasehold.json"
	// PartSuffix is the suffix of objects that are still being written, on targets where such
	// objects are visible.
	PartSuffix = ".part"

	timeForm = "20060102T150405.000Z"
)

var (
	fullName  = regexp.MustCompile(`^full/(\d{20})-(\d+)-(\d+)-(\d{8}T\d{6}\.\d{3}Z)\.backup$`)
	pieceName = regexp.MustCompile(
		`^log/(\d{20})-(\d{20})-(\d+)-(\d+)-(\d+)-(\d{8}T\d{6}\.\d{3}Z)-([0-9a-f]{1,16})\.log$`)
)

// Object is an object in a target.
type Object struct {
	Name  string
	Bytes int64
}

// Full is a backup of the entire state.
type Full struct {
	Object
	Place
	Revision int64
	Time     time.Time
}

// FullName returns the name of a full backup.
func FullName(at Place, revision int64, t time.Time) string {
	return fmt.Sprintf("full/%020d-%d-%d-%s.backup", at.Index, at.Term, revision,
		t.UTC().Format(timeForm))
}

// PieceInfo is the information in the name of a piece of the log.
type PieceInfo struct {
	Object
	First    uint64 // index of the first entry
	Before   uint64 // term of the entry before the first
	Last     Place
	Revision int64 // lower bound on the revision of the state after Last
	Time     time.Time
	Member   uint64 // member that copied the piece
}

// PieceName returns the name of a piece.
func PieceName(i PieceInfo) string {
	return fmt.Sprintf("log/%020d-%020d-%d-%d-%d-%s-%x.log", i.First, i.Last.Index, i.Before,
		i.Last.Term, i.Revision, i.Time.UTC().Format(timeForm), i.Member)
}

// Catalog lists the contents of a target, based on the names of its objects.
type Catalog struct {
	Fulls  []Full      // sorted by place in the log, because times may be wrong
	Pieces []PieceInfo // sorted by first entry, longest first
	Others []Object    // objects that are unfinished or not Leasehold's
}

// Catalogue returns a Catalog of the given objects.
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
		return a.Place.before(b.Place) || a.Place == b.Place && a.Time.Before(b.Time)
	})
	sort.Slice(c.Pieces, func(i, j int) bool {
		a, b := &c.Pieces[i], &c.Pieces[j]
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last.Index, a.Last.Index),
			cmp.Compare(a.Name, b.Name)) < 0
	})
	return c
}

// number parses digits. If the number is too large, it returns the maximum value.
func number(digits string) uint64 {
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}

// Walk follows the pieces of a copied log. Catalog.Walk creates one.
type Walk struct{ left, open []PieceInfo }

// Walk returns a Walk that starts at the first piece.
func (c *Catalog) Walk() *Walk { return &Walk{left: c.Pieces} }

// Next returns the pieces that contain the entry after a place and, judging by their names,
// continue the log from that place. Pieces with the newest term come first; within a term, those
// that reach farthest come first. So if a cluster lost entries and continued without them, its
// current log comes before the lost entries: terms never decrease along a log. Places must not
// decrease from call to call.
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

// Reach returns how far the copied log extends past a place without a gap, judging by the object
// names. It also returns the piece that ends there, or a zero value if there is none.
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

// Newest returns the newest full backup whose time is not after now. A later time comes from a
// member whose clock was ahead.
func (c *Catalog) Newest(now time.Time) (newest Full, ok bool) {
	for _, f := range c.Fulls {
		if !f.Time.After(now) {
			newest, ok = f, true
		}
	}
	return newest, ok
}

// ErrOtherCluster means that a target has backups of another cluster, or of the cluster from which
// this one was restored.
var ErrOtherCluster = errors.New("backup: the target contains backups of another cluster")

// manifestFormat identifies the format of a target.
const manifestFormat = "leasehold backups 1"

type manifest struct {
	Format  string `json:"format"`
	Cluster string `json:"cluster"`
	Restore string `json:"restore,omitempty"`
}

// Manifest returns the contents of the object named ManifestName.
func Manifest(h History) []byte {
	m := manifest{Format: manifestFormat, Cluster: fmt.Sprintf("%016x", h.Cluster)}
	if h.Restore != 0 {
		m.Restore = fmt.Sprintf("%016x", h.Restore)
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // m has only strings
	}
	return append(b, '\n')
}

// ReadManifest returns the history recorded in a target's manifest.
func ReadManifest(b []byte) (h History, err error) {
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return h, fmt.Errorf("%w: %s: %w", ErrNotWhole, ManifestName, err)
	}
	if m.Format != manifestFormat {
		return h, fmt.Errorf("%w: the format in %s is %q, but this release reads %q",
			ErrNotWhole, ManifestName, m.Format, manifestFormat)
	}
	h.Cluster, err = strconv.ParseUint(m.Cluster, 16, 64)
	if err == nil && m.Restore != "" {
		h.Restore, err = strconv.ParseUint(m.Restore, 16, 64)
	}
	if err != nil {
		return h, fmt.Errorf("%w: %s: %w", ErrNotWhole, ManifestName, err)
	}
	return h, nil
}
