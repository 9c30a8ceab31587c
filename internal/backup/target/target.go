// Package target stores backups in a directory or in a bucket of an S3-compatible object store. It
// handles the names and bytes of objects but does not interpret them.
//
// A target is safe for concurrent use, as long as no two goroutines write the same name at the same
// time.
package target

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"leasehold.dev/internal/backup"
)

// The errors from all targets wrap these errors.
var (
	// ErrNotFound means that a target has no object with the given name.
	ErrNotFound = errors.New("target: object not found")
	// errExists means that a target already has an object that was supposed to be new.
	errExists = errors.New("target: the object already exists")
	// ErrDamaged means that the data read back differs from the data written.
	ErrDamaged = errors.New("target: the data read back differs from the data written")
	// errURL means that a string does not name a target.
	errURL = errors.New("not a target for backups")
)

// Target stores objects.
type Target interface {
	// Put writes an object, atomically.
	Put(ctx context.Context, c Content) error
	// Get reads an object.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns all objects, in any order.
	List(ctx context.Context) ([]backup.Object, error)
	// Delete removes an object. It is not an error if the object does not exist.
	Delete(ctx context.Context, name string) error
	// String returns the location in human-readable form.
	String() string
}

// Content is an object to write.
type Content struct {
	Name  string
	Bytes int64
	Sum   [sha256.Size]byte
	// Write writes the bytes. It must write the same bytes each time it is called.
	Write func(io.Writer) error
	// New means that the object must not exist yet.
	New bool
}

// Bytes returns a Content for an object in memory.
func Bytes(name string, b []byte) Content {
	write := func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
	return Content{Name: name, Bytes: int64(len(b)), Sum: sha256.Sum256(b), Write: write}
}

// Open returns the target with the given name: a path, file:///path, or s3://bucket/prefix with the
// parameters endpoint and region. The credentials for a bucket come from the [default] section of a
// file like ~/.aws/credentials. If credentialsFile is "", they come from the environment or the
// machine's role. Open does no I/O.
func Open(name, credentialsFile string) (Target, error) {
	if !strings.Contains(name, "://") {
		if name == "" {
			return nil, fmt.Errorf("%w: it is empty; specify a directory, or s3://BUCKET/PREFIX", errURL)
		}
		return detach(newDirectory(name)), nil
	}
	u, err := url.Parse(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", errURL, withoutSecrets(err, name))
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" || u.Path == "" || u.RawQuery != "" {
			return nil, fmt.Errorf("%w: %q; write file:///DIRECTORY", errURL, u.Redacted())
		}
		return detach(newDirectory(u.Path)), nil
	case "s3":
		return newBucket(u, credentialsFile)
	}
	return nil, fmt.Errorf("%w: %q; use a directory, file:///DIRECTORY, or s3://BUCKET/PREFIX",
		errURL, u.Redacted())
}

// withoutSecrets returns why a URL cannot be parsed. The result does not contain the URL.
func withoutSecrets(err error, name string) string {
	var e *url.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	scheme, _, _ := strings.Cut(name, "://")
	return fmt.Sprintf("cannot parse the URL %s://...: %v", scheme, err)
}

// Store writes an object, reads it back, and compares the contents. If they differ, Store tries to
// remove the object.
func Store(ctx context.Context, t Target, c Content) error {
	if err := t.Put(ctx, c); err != nil {
		return fmt.Errorf("write %s: %w", c.Name, err)
	}
	err := check(ctx, t, &c)
	if errors.Is(err, ErrDamaged) {
		err = errors.Join(err, t.Delete(ctx, c.Name))
	}
	return err
}

// check reads an object back and compares it with c.
func check(ctx context.Context, t Target, c *Content) error {
	r, err := t.Get(ctx, c.Name)
	if err != nil {
		return fmt.Errorf("read %s back: %w", c.Name, err)
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err != nil {
		return fmt.Errorf("read %s back: %w", c.Name, err)
	}
	if n != c.Bytes || [sha256.Size]byte(sum.Sum(nil)) != c.Sum {
		return fmt.Errorf("%s: %w: %d bytes of %d", c.Name, ErrDamaged, n, c.Bytes)
	}
	return nil
}

// Load reads an object into memory.
func Load(ctx context.Context, t Target, name string) ([]byte, error) {
	r, err := t.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// Catalog lists the backups in a target.
func Catalog(ctx context.Context, t Target) (backup.Catalog, error) {
	objects, err := t.List(ctx)
	if err != nil {
		return backup.Catalog{}, fmt.Errorf("list %s: %w", t, err)
	}
	return backup.Catalogue(objects), nil
}

// History returns the history of a target's backups, or [ErrNotFound] if it has none.
func History(ctx context.Context, t Target) (backup.History, error) {
	b, err := Load(ctx, t, backup.ManifestName)
	if err != nil {
		return backup.History{}, fmt.Errorf("%s: %w", t, err)
	}
	return backup.ReadManifest(b)
}

// Claim reserves a target for the backups of one history. If the target has backups of another
// history, Claim returns [backup.ErrOtherCluster].
func Claim(ctx context.Context, t Target, h backup.History) error {
	owner, err := History(ctx, t)
	if errors.Is(err, ErrNotFound) {
		has, err := Catalog(ctx, t)
		if err != nil {
			return err
		}
		if len(has.Fulls)+len(has.Pieces) > 0 {
			return fmt.Errorf("%s contains backups but no %s, which names the cluster that made "+
				"them; use another directory or prefix", t, backup.ManifestName)
		}
		c := Bytes(backup.ManifestName, backup.Manifest(h))
		c.New = true // if two clusters claim the target at the same time, the first to write wins
		if err := t.Put(ctx, c); err != nil && !errors.Is(err, errExists) {
			return fmt.Errorf("%s: write %s: %w", t, backup.ManifestName, err)
		}
		if owner, err = History(ctx, t); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if owner != h {
		return fmt.Errorf("%w: %s belongs to %v, but this is %v; use another directory or prefix",
			backup.ErrOtherCluster, t, owner, h)
	}
	return nil
}
