package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

func (a commands) snapshotCommand() *cobra.Command {
	return a.Family("snapshot", "Save, inspect and restore snapshots", app.Command{
		Use: "save <filename>", Short: "Save a snapshot of a member's state to a file",
		Example: "snapshot save --endpoints=127.0.0.1:2379 /backup/leasehold.db",
		Min:     1, Max: 1,
		Run: func(_ *cobra.Command, args, _ []string) error {
			version, err := a.saveSnapshot(args[0])
			if err != nil {
				return err
			}
			a.Say("Snapshot saved at %s\n", args[0])
			if version != "" {
				a.Say("Server version %s\n", version)
			}
			return nil
		},
	})
}

// saveSnapshot saves the state of one member to a file. The file gets its final name only once it
// is complete and synced.
func (a commands) saveSnapshot(path string) (version string, err error) {
	spec, err := a.Prepare()
	if err != nil {
		return "", err
	}
	c, err := a.Dial(spec)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer func() { err = app.WithCode(app.ExitInterrupted, err) }()
	if len(spec.Endpoints) != 1 {
		return "", fmt.Errorf("snapshot must be requested to one selected node, not multiple %v",
			spec.Endpoints)
	}
	f, err := createPart(path)
	if err != nil {
		return "", err
	}
	part := f.Name()
	defer os.Remove(part) // no longer exists after a successful rename
	defer f.Close()
	// The snapshot itself can take a long time. Check first that the server responds, because an
	// unattended backup must not wait forever.
	if err := a.Answers(c, spec.Endpoints[0]); err != nil {
		return "", err
	}
	ctx, cancel := a.PatientContext()
	defer cancel()
	var saved countingWriter
	stopWaiting := a.ShowWaiting(func(context.Context) string {
		return "Saving the snapshot: " + humanize.Bytes(uint64(saved.n.Load())) + " so far"
	})
	version, err = fetchSnapshot(ctx, c, io.MultiWriter(f, &saved))
	stopWaiting()
	if err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", fmt.Errorf("could not fsync snapshot: %w", err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("could not close file descriptor: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return "", fmt.Errorf("could not rename %s to %s (%w)", part, path, err)
	}
	return version, nil
}

// countingWriter counts the bytes written to it.
type countingWriter struct{ n atomic.Int64 }

// Write implements io.Writer.
func (c *countingWriter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// createPart creates a temporary file, which is renamed to path when it is complete.
func createPart(path string) (*os.File, error) {
	if i, err := os.Stat(path); err == nil && !i.Mode().IsRegular() {
		return nil, fmt.Errorf("%s exists and is not a regular file; "+
			"save to a file", path)
	}
	// Backups often go to directories that others can write to. The name is unpredictable, so no
	// other user can have created a link with that name.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		// Omit the temporary name from the error.
		return nil, fmt.Errorf("could not create a file in %s (%w)", filepath.Dir(path),
			errors.Unwrap(err))
	}
	return f, nil
}

// fetchSnapshot copies a member's snapshot to w and returns the version of the server.
func fetchSnapshot(ctx context.Context, c *clientv3.Client, w io.Writer) (string, error) {
	resp, err := c.SnapshotWithVersion(ctx)
	if err != nil {
		return "", err
	}
	defer resp.Snapshot.Close()
	check := &trailingSum{}
	size, err := io.Copy(io.MultiWriter(w, check), resp.Snapshot)
	if err != nil {
		return "", fmt.Errorf("could not write snapshot: %w", err)
	}
	// If the server had sent no checksum, the size would be a multiple of the disk sector size.
	if size%512 != sha256.Size {
		return "", fmt.Errorf("sha256 checksum not found [bytes: %d]", size)
	}
	if !check.ok() {
		return "", errors.New("sha256 checksum does not match the snapshot")
	}
	return resp.Version, nil
}

// trailingSum checks that a stream ends with the SHA-256 of everything before it. etcdctl only
// checks the length.
type trailingSum struct {
	body bytes.Buffer // bytes that might be part of the checksum; never much larger than one write
	sum  interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func (t *trailingSum) Write(p []byte) (int, error) {
	if t.sum == nil {
		t.sum = sha256.New()
	}
	t.body.Write(p)
	if n := t.body.Len() - sha256.Size; n > 0 {
		t.sum.Write(t.body.Next(n))
	}
	return len(p), nil
}

func (t *trailingSum) ok() bool {
	return t.sum != nil && bytes.Equal(t.sum.Sum(nil), t.body.Bytes())
}
