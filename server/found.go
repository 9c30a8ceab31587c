package server

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"

	"leasehold.dev/internal/storage"
)

// errFounded means that a data directory belongs to a cluster already.
var errFounded = errors.New("server: the data directory already belongs to a cluster")

// Found founds a cluster in an empty data directory, which becomes that of its first member, and
// returns the IDs of cluster and member. It does not start the member. Use it where members are
// started so that they never found a cluster, and a lost disk cannot make a second one. It
// completes a founding that was interrupted.
func Found(c Config) (cluster, member uint64, err error) {
	if err := c.Validate(); err != nil {
		return 0, 0, err
	}
	if n := len(c.InitialMembers()); n > 1 || c.Cluster.State != NewCluster {
		return 0, 0, fmt.Errorf("%w: one member founds the cluster here; leave out "+
			"--initial-cluster and --initial-cluster-state, and let the others join with "+
			"--join", ErrConfig)
	}
	if err := refuseUnusable(c.DataDir); err != nil {
		return 0, 0, err
	}
	disk, err := storage.Open(storage.Config{Dir: c.DataDir, FS: c.Host.Files(), Logger: c.Logger})
	if err != nil {
		return 0, 0, fmt.Errorf("open data directory %q: %w", c.DataDir, err)
	}
	id, identified := disk.Identity()
	half, err := halfFounded(disk)
	if err == nil && identified && !half {
		err = fmt.Errorf("%w: %s, to cluster %x as member %x",
			errFounded, c.DataDir, id.Cluster, id.Member)
	} else if err == nil {
		err = found(disk, c, half)
		id, _ = disk.Identity()
	}
	return id.Cluster, id.Member, errors.Join(err, disk.Close())
}

// halfFounded reports whether a data directory has an identity, but not the state with which a
// founder begins: its founding was cut short.
func halfFounded(disk *storage.Disk) (bool, error) {
	_, identified := disk.Identity()
	snap, err := disk.Snapshot()
	if err != nil || !identified || !raft.IsEmptySnap(snap) {
		return false, err
	}
	_, conf, err := disk.InitialState()
	return len(conf.GetVoters()) > 0, err // one that joins knows of none yet
}

// HalfFounded returns an error if the founding of a cluster in a data directory was interrupted;
// the error says what to do. It is for members that do not found a cluster.
func HalfFounded(disk *storage.Disk) error {
	half, err := halfFounded(disk)
	if err == nil && half {
		err = errors.New("server: the founding of a cluster in this data directory was " +
			"interrupted; repeat the command, such as \"leasehold init\", with the same flags")
	}
	return err
}
