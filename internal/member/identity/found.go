package identity

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/storage"
)

// FirstIndex is the index and the term of the first snapshot of each founder. All founders write
// the same snapshot, so they know about each other without a log entry.
const FirstIndex = 1

// ErrFounded means that a data directory already belongs to a cluster.
var ErrFounded = errors.New("server: the data directory already belongs to a cluster")

// Found founds a cluster in an empty data directory. The directory then belongs to the first member
// of the cluster. Found returns the IDs of the cluster and the member. It completes a founding that
// was interrupted.
func Found(c Config) (cluster, member uint64, err error) {
	if n := len(c.Initial); n > 1 || c.Existing {
		return 0, 0, fmt.Errorf("%w: init creates a single-member cluster; omit "+
			"--initial-cluster and --initial-cluster-state, and start the others with "+
			"--join", ErrConfig)
	}
	if err := refuseUnusable(c.DataDir); err != nil {
		return 0, 0, err
	}
	disk, err := storage.Open(storage.Config{Dir: c.DataDir, FS: c.Files, Logger: c.Logger})
	if err != nil {
		return 0, 0, fmt.Errorf("open data directory %q: %w", c.DataDir, err)
	}
	id, identified := disk.Identity()
	half, err := halfFounded(disk)
	if err == nil && identified && !half {
		err = fmt.Errorf("%w: %s, cluster %x, member %x",
			ErrFounded, c.DataDir, id.Cluster, id.Member)
	} else if err == nil {
		err = found(disk, c, half)
		id, _ = disk.Identity()
	}
	return id.Cluster, id.Member, errors.Join(err, disk.Close())
}

// halfFounded reports whether a data directory has an identity but not a founder's initial state.
// If so, the founding was interrupted.
func halfFounded(disk *storage.Disk) (bool, error) {
	_, identified := disk.Identity()
	snap, err := disk.Snapshot()
	if err != nil || !identified || !raft.IsEmptySnap(snap) {
		return false, err
	}
	_, conf, err := disk.InitialState()
	return len(conf.GetVoters()) > 0, err // a joining member does not have any voters yet
}

// HalfFounded returns an error if the founding of a cluster in a data directory was interrupted.
// The error includes a remedy. HalfFounded is for members that do not found a cluster.
func HalfFounded(disk *storage.Disk) error {
	half, err := halfFounded(disk)
	if err == nil && half {
		err = errors.New("server: the creation of a cluster in this data directory was " +
			"interrupted; repeat the command, such as \"leasehold init\", with the same flags")
	}
	return err
}

// founders returns the members that found the cluster, in ID order. The order of their URLs does
// not depend on the flags, so that all founders begin with the same state.
func founders(c Config) []fsm.Member {
	var members []fsm.Member
	for name, urls := range c.Initial {
		members = append(members, fsm.Member{
			ID: memberID(urls, c.Token), Name: name,
			PeerURLs: slices.Sorted(slices.Values(listen.URLTexts(urls))),
		})
	}
	sort.Slice(members, func(i, j int) bool { return members[i].ID < members[j].ID })
	return members
}

// found writes the first snapshot to an empty data directory. It also writes the identity, unless
// the directory already has one.
func found(disk *storage.Disk, c Config, identified bool) error {
	if err := c.CheckBootstrap(); err != nil {
		return err
	}
	members := founders(c)
	begin := func() error { return identify(disk, c, members, storage.Identity{}) }
	if identified {
		begin = func() error { return sameFounding(disk, c, members) }
	}
	if err := begin(); err != nil {
		return err
	}
	if err := disk.SavePeers(storage.Peers{Assembled: len(members) == 1}); err != nil {
		return err
	}
	return writeFirst(disk, members, c.Machine)
}

// sameFounding returns an error if an interrupted founding was begun with different flags.
func sameFounding(disk *storage.Disk, c Config, members []fsm.Member) error {
	id, _ := disk.Identity()
	if id.Name == c.Name && id.Cluster == c.clusterID(members, id.Incarnation) &&
		id.Member == memberID(c.Initial[c.Name], c.Token) {
		return nil
	}
	return fmt.Errorf("%w: the creation of cluster %x was interrupted here for member %x (%s); "+
		"complete it with the same --name, --initial-advertise-peer-urls, --initial-cluster and "+
		"--initial-cluster-token, or remove the data directory",
		ErrConfig, id.Cluster, id.Member, id.Name)
}

// identify writes the identity of this member, one of the founders of a cluster, to disk. It
// generates the IDs that are missing from like.
func identify(disk *storage.Disk, c Config, members []fsm.Member, like storage.Identity) error {
	like.Name, like.Incarnation = c.Name, newIncarnation()
	like.Member = cmp.Or(like.Member, memberID(c.Initial[c.Name], c.Token))
	like.Cluster = cmp.Or(like.Cluster, c.clusterID(members, like.Incarnation))
	like.CreatedUnixMilli = time.Now().UnixMilli()
	return disk.Bootstrap(like, confState(members))
}

func writeFirst(disk *storage.Disk, members []fsm.Member, c fsm.Config) error {
	m := fsm.New(c)
	m.Begin(FirstIndex, FirstIndex)
	for _, n := range members {
		m.AddMember(n)
	}
	// Committing the snapshot also sets the hard state to the snapshot's index and term.
	return WriteSnapshot(disk, m.Image(), confState(members), 0)
}

func confState(members []fsm.Member) *raftpb.ConfState {
	cs := &raftpb.ConfState{}
	for _, m := range members {
		cs.Voters = append(cs.Voters, m.ID)
	}
	return cs
}

// memberID derives the ID of a founding member from the configuration shared by all founders, so
// that they agree on it without communicating. It is never 0.
func memberID(urls []url.URL, token string) uint64 {
	h := sha256.New()
	for _, u := range slices.Sorted(slices.Values(listen.URLTexts(urls))) {
		fmt.Fprintf(h, "%s\n", u)
	}
	fmt.Fprintf(h, "token %s\n", token)
	return binary.BigEndian.Uint64(h.Sum(nil)) | 1
}

// clusterID derives the cluster's ID from the founders, so that they agree on it without
// communicating. A single founder generates a unique ID. If it loses its disk and founds another
// cluster, the new cluster is not mistaken for this one. Founders whose initial states differ get
// different IDs, and so found different clusters. Their states differ if they have different names
// for members or support different cluster versions.
func (c Config) clusterID(members []fsm.Member, incarnation uint64) uint64 {
	h := sha256.New()
	for _, m := range members {
		fmt.Fprintf(h, "%d %s\n", m.ID, m.Name)
	}
	if len(members) == 1 {
		fmt.Fprintf(h, "incarnation %x\n", incarnation)
	}
	fmt.Fprintf(h, "version %d\n", c.Machine.Versions.Oldest)
	return binary.BigEndian.Uint64(h.Sum(nil)) | 1
}
