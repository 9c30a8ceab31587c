package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/identity"
)

// ignoredResult is the owner of a command whose result is not awaited.
type ignoredResult struct{}

func (ignoredResult) answered(int64) {}

// hash computes the hash of a state in its own goroutine, and proposes it. It does nothing if an
// earlier computation is still running.
func (c *core) hash(image *fsm.Image) {
	if c.snap.hashing {
		return
	}
	c.snap.hashing = true
	c.snap.wg.Go(func() {
		begin := time.Now()
		sum, err := image.Hash()
		took := time.Since(begin)
		c.inbox.task(func() {
			if c.snap.hashing = false; err == nil {
				c.replica.ReportHash(image, sum, ignoredResult{})
			}
		})
		c.log.Debug("computed the hash of the state", "index", image.View.Index,
			"hash", fmt.Sprintf("%08x", sum), "took", took, "error", err)
	})
}

// logDamage logs the result of comparing the members' states. It is called at each member.
func (c *core) logDamage(old, v *fsm.View) {
	if !c.began.current {
		return // the result might be out of date
	}
	for _, a := range v.Alarms {
		switch {
		case slices.Contains(old.Alarms, a):
		case a.Kind == fsm.Damaged:
			c.log.Error("the state of a member differs from the majority's, so the member stops; "+
				"replace it", "alarm", "CORRUPT", "member", fmt.Sprintf("%x", a.Member),
				"to-replace", "move its data directory away, and start it with --join ADDRESS --replace")
		case a.Kind == fsm.Split:
			c.log.Error("the states of members differ, and no majority agrees: writes are "+
				"rejected; find out which member is correct, and remove the others",
				"alarm", "CORRUPT", "to-compare", "leasehold endpoint hashkv --cluster",
				"to-remove", "leasehold member remove ID")
		}
	}
}

// damaged returns an error with a remedy. It also saves the in-memory state.
func (c *core) damaged(err error) error {
	image := c.replica.Machine().Image()
	name := fmt.Sprintf("damaged-%d.backup", image.View.Index)
	kept := fmt.Sprintf("its in-memory state was saved to %s (compare the output of leasehold "+
		"snapshot dump with that for another member's backup)", filepath.Join(c.dir, name))
	if err := c.keepEvidence(name, image); err != nil {
		kept = fmt.Sprintf("its in-memory state could not be saved: %v", err)
	}
	return identity.Damaged(fmt.Errorf("server: %w. It has stopped, and its data in %s is unchanged; "+
		"%s. It will not run on this data again: move the directory away, and start the member "+
		"with --join ADDRESS --replace, where ADDRESS is another member's",
		err, c.dir, kept))
}

// keepEvidence writes the state to a file in the data directory.
func (c *core) keepEvidence(name string, image *fsm.Image) error {
	dir, err := target.Open(c.dir, "")
	if err != nil {
		return err
	}
	id, _ := c.disk.Identity()
	ctx := context.Background() // there is nothing else left to do
	return dir.Put(ctx, target.Content{Name: name, Write: func(w io.Writer) error {
		sum := sha256.New()
		err := backup.Write(ctx, io.MultiWriter(w, sum), id.Cluster, image.Encode)
		if err == nil {
			_, err = w.Write(sum.Sum(nil))
		}
		return err
	}})
}
