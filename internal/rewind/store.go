// Package rewind lists and verifies the backups that members make. It uses them to restore the
// state at a point in time into a data directory, and can also restore a snapshot of an etcd
// cluster. It determines the condition of a member's data directory, and can turn a survivor's data
// directory into one for the first member of a new cluster. It does not need a running member.
package rewind

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
	"leasehold.dev/server"
)

// errMissing means that the backups cannot provide what was requested.
var errMissing = errors.New("not in the backups")

// errOtherHistory means that an object does not belong to the target's history.
var errOtherHistory = fmt.Errorf("%w of this cluster", server.ErrBackup)

// Backups reads the backups that members have written to a directory or bucket.
type Backups struct{ target target.Target }

// Open returns the backups in a target, which is named as in --backup-to. It does no I/O.
func Open(name, credentialsFile string) (*Backups, error) {
	t, err := target.Open(name, credentialsFile)
	if err != nil {
		return nil, err
	}
	return &Backups{t}, nil
}

// File describes a full backup, and how far the copied log extends beyond it.
type File struct {
	Name     string
	Bytes    int64
	Revision int64
	Time     time.Time
	// ToRevision and ToTime are lower bounds on the latest revision and time that can be restored.
	// The copied log may include further writes made at the same time.
	ToRevision int64
	ToTime     time.Time
}

// List lists the objects in a target, going by their names.
type List struct {
	backup.History
	Fulls []File // oldest first
	// Pieces is the number of pieces of the log. Bytes is the total size of all objects.
	Pieces int
	Bytes  int64
}

// List lists the backups. It does not read them.
func (b *Backups) List(ctx context.Context) (List, error) {
	h, c, err := b.readCatalog(ctx)
	if err != nil {
		return List{}, err
	}
	list := List{History: h, Pieces: len(c.Pieces)}
	for _, p := range c.Pieces {
		list.Bytes += p.Bytes
	}
	for _, f := range c.Fulls {
		list.Bytes += f.Bytes
		x := File{
			Name: f.Name, Bytes: f.Bytes, Revision: f.Revision, Time: f.Time,
			ToRevision: f.Revision, ToTime: f.Time,
		}
		if _, last := c.Reach(f.Place); last.Name != "" {
			x.ToRevision, x.ToTime = max(x.Revision, last.Revision), last.Time
		}
		list.Fulls = append(list.Fulls, x)
	}
	return list, nil
}

// readCatalog returns the history that the backups belong to, and the objects in the target.
func (b *Backups) readCatalog(ctx context.Context) (backup.History, backup.Catalog, error) {
	h, err := target.History(ctx, b.target)
	if errors.Is(err, target.ErrNotFound) {
		return h, backup.Catalog{}, fmt.Errorf("%w: %s has no %s, so no member has made backups "+
			"there yet", errMissing, b.target, backup.ManifestName)
	}
	if err != nil {
		return h, backup.Catalog{}, err
	}
	c, err := target.Catalog(ctx, b.target)
	return h, c, err
}

// Verify reads every backup completely. It calls report for each one with its error or nil, and
// returns how many are damaged or missing. It needs as much memory as the state.
func (b *Backups) Verify(
	ctx context.Context, report func(name string, err error),
) (bad int, err error) {
	h, c, err := b.readCatalog(ctx)
	if err != nil {
		return 0, err
	}
	check := func(name string, err error) error {
		if err != nil && !isDamage(err) {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err != nil {
			bad++
		}
		report(name, err)
		return nil
	}
	for _, f := range c.Fulls {
		if err := check(f.Name, b.verifyFull(ctx, h, f)); err != nil {
			return bad, err
		}
	}
	for _, p := range c.Pieces {
		_, err := b.piece(ctx, h, p)
		if err := check(p.Name, err); err != nil {
			return bad, err
		}
	}
	for i, f := range c.Fulls {
		if at, _ := c.Reach(f.Place); i < len(c.Fulls)-1 && at.Index < c.Fulls[i+1].Index {
			bad++
			report(f.Name, fmt.Errorf("%w: the log after it ends at entry %d, before the next full "+
				"backup at entry %d: points in time between them cannot be restored",
				errMissing, at.Index, c.Fulls[i+1].Index))
		}
	}
	return bad, nil
}

func (b *Backups) verifyFull(ctx context.Context, h backup.History, f backup.Full) error {
	r, err := b.target.Get(ctx, f.Name)
	if err != nil {
		return err
	}
	defer r.Close()
	info, err := server.BackupStatus(r)
	switch {
	case err != nil:
		return err
	case backup.History{Cluster: info.Cluster, Restore: info.Restore} != h:
		return otherHistory(backup.History{Cluster: info.Cluster, Restore: info.Restore}, h)
	case info.Revision != f.Revision:
		return fmt.Errorf("%w: it has revision %d, but its name contains %d",
			server.ErrBackup, info.Revision, f.Revision)
	}
	return nil
}

func otherHistory(got, want backup.History) error {
	return fmt.Errorf("%w: it belongs to %v, but the target belongs to %v",
		errOtherHistory, got, want)
}

// isDamage reports whether err means that an object is damaged or missing, rather than that it
// could not be read.
func isDamage(err error) bool {
	return errors.Is(err, server.ErrBackup) || errors.Is(err, target.ErrNotFound)
}

// piece reads a piece of the log and checks it against its name.
func (b *Backups) piece(
	ctx context.Context, h backup.History, i backup.PieceInfo,
) (backup.Piece, error) {
	text, err := target.Load(ctx, b.target, i.Name)
	if err != nil {
		return backup.Piece{}, err
	}
	return decodePiece(text, h, i)
}

func decodePiece(text []byte, h backup.History, i backup.PieceInfo) (backup.Piece, error) {
	p, err := backup.DecodePiece(text)
	switch {
	case err != nil:
		return p, err
	case p.History != h:
		return p, otherHistory(p.History, h)
	case p.Previous != backup.Place{Index: i.First - 1, Term: i.Before} || p.Last() != i.Last:
		return p, fmt.Errorf("%w: its entries do not match its name", server.ErrBackup)
	}
	return p, nil
}

// fetched prefetches pieces of the log, several at the same time.
type fetched struct {
	results   map[string]chan fetchedPiece // immutable once reading has started
	requested map[string]bool
	stop      context.CancelFunc
}

type fetchedPiece struct {
	text []byte
	err  error
}

// fetchAhead is the number of pieces that are read at the same time. Each can be several mebibytes.
const fetchAhead = 8

// fetchPieces starts prefetching the pieces that continue a log from a given position.
func (b *Backups) fetchPieces(
	ctx context.Context, c *backup.Catalog, at backup.Place,
) *fetched {
	ctx, stop := context.WithCancel(ctx)
	f := &fetched{
		results: make(map[string]chan fetchedPiece), requested: make(map[string]bool), stop: stop,
	}
	var names []string
	for w := c.Walk(); ; {
		next := w.Next(at)
		if len(next) == 0 {
			break
		}
		names, at = append(names, next[0].Name), next[0].Last
		f.results[next[0].Name] = make(chan fetchedPiece) // unbuffered, so that prefetching waits
	}
	work := make(chan string)
	go func() {
		defer close(work)
		for _, name := range names {
			select {
			case work <- name:
			case <-ctx.Done():
				return
			}
		}
	}()
	for range min(fetchAhead, len(names)) {
		go func() {
			for name := range work {
				text, err := target.Load(ctx, b.target, name)
				select {
				case f.results[name] <- fetchedPiece{text, err}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return f
}

// get returns a piece. Prefetched pieces must be requested in order.
func (f *fetched) get(ctx context.Context, b *Backups, name string) ([]byte, error) {
	if ch, ok := f.results[name]; ok && !f.requested[name] {
		f.requested[name] = true
		select {
		case r := <-ch:
			return r.text, r.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return target.Load(ctx, b.target, name)
}
