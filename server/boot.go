package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/lease"
)

// storageVersion is what clients are told of the data's version; it is that of
// the etcd whose API is served.
const storageVersion = "3.7.0"

// firstIndex is the index and the term of the snapshot that every founding
// member begins with. All founders write the same, so no entry is needed to
// tell them of each other.
const firstIndex = 1

// boot opens the data directory, founding the cluster if it is empty, and
// loads the state from the newest snapshot.
func boot(c Config) (*storage.Disk, *fsm.Machine, error) {
	if err := refuseHalfRestored(c.DataDir); err != nil {
		return nil, nil, fmt.Errorf("open data directory %q: %w", c.DataDir, err)
	}
	disk, err := storage.Open(storage.Config{Dir: c.DataDir, Logger: c.Logger})
	if err != nil {
		return nil, nil, fmt.Errorf("open data directory %q: %w", c.DataDir, err)
	}
	machine, err := load(disk, c)
	if err != nil {
		return nil, nil, errors.Join(err, disk.Close())
	}
	return disk, machine, nil
}

func load(disk *storage.Disk, c Config) (*fsm.Machine, error) {
	_, founded := disk.Identity()
	snap, err := disk.Snapshot()
	if err != nil {
		return nil, err
	}
	// Identity without snapshot is what a crash in the middle leaves.
	if !founded || raft.IsEmptySnap(snap) {
		if err := found(disk, c, founded); err != nil {
			return nil, fmt.Errorf("found a cluster in %q: %w", c.DataDir, err)
		}
	}
	return restore(disk, machineConfig(c))
}

// founders returns the members that found the cluster, in ID order.
func founders(c Config) ([]fsm.Member, error) {
	var members []fsm.Member
	for name, urls := range c.InitialMembers() {
		members = append(members, fsm.Member{
			ID: memberID(urls, c.Cluster.Token), Name: name, PeerURLs: urlStrings(urls),
		})
	}
	slices.SortFunc(members, func(a, b fsm.Member) int { return cmp.Compare(a.ID, b.ID) })
	if len(members) > 1 {
		return nil, fmt.Errorf("%w: %d members in --initial-cluster, but this release runs "+
			"clusters of one member; leave --initial-cluster out", ErrConfig, len(members))
	}
	return members, nil
}

// found gives an empty data directory its identity, unless it got that far
// before, and its first snapshot.
func found(disk *storage.Disk, c Config, identified bool) error {
	if err := c.CheckBootstrap(); err != nil {
		return err
	}
	if c.Cluster.State == ExistingCluster {
		return fmt.Errorf("%w: the data directory is empty and --initial-cluster-state is "+
			"existing; this release cannot join a cluster", ErrConfig)
	}
	members, err := founders(c)
	if err != nil {
		return err
	}
	if !identified {
		if err := identify(disk, c, members, 0); err != nil {
			return err
		}
	}
	return writeFirst(disk, members, machineConfig(c))
}

// identify makes disk this member's, among the founders of a cluster whose
// fencing tokens are of the given generation or a later one.
func identify(disk *storage.Disk, c Config, members []fsm.Member, generation uint64) error {
	return disk.Bootstrap(storage.Identity{
		Cluster: clusterID(members), Name: c.Name,
		Member:           memberID(c.InitialMembers()[c.Name], c.Cluster.Token),
		Generation:       generation,
		CreatedUnixMilli: time.Now().UnixMilli(),
	}, confState(members))
}

func writeFirst(disk *storage.Disk, members []fsm.Member, c fsm.Config) error {
	m := fsm.New(c)
	m.Begin(firstIndex, firstIndex)
	for _, n := range members {
		m.AddMember(n)
	}
	// Committing the snapshot sets the hard state to its index and term, in the same step.
	return writeSnapshot(disk, m.Image(), confState(members))
}

func restore(disk *storage.Disk, c fsm.Config) (*fsm.Machine, error) {
	r, err := disk.OpenSnapshot()
	if err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	defer r.Close()
	m, err := fsm.Restore(c, func() ([]byte, bool, error) {
		chunk, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		return chunk, err == nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("load the snapshot at index %d: %w", r.Meta().Index, err)
	}
	if m.Index() != r.Meta().Index {
		return nil, fmt.Errorf("load the snapshot at index %d: %w: it holds index %d",
			r.Meta().Index, storage.ErrCorrupt, m.Index())
	}
	return m, nil
}

func machineConfig(c Config) fsm.Config {
	return fsm.Config{Lease: lease.Config{
		MinTTL:             lease.TTL(c.Lease.MinTTL.Milliseconds()),
		CheckpointInterval: lease.TTL(c.Lease.CheckpointInterval.Milliseconds()),
	}}
}

func confState(members []fsm.Member) *raftpb.ConfState {
	cs := &raftpb.ConfState{}
	for _, m := range members {
		cs.Voters = append(cs.Voters, m.ID)
	}
	return cs
}

// memberID derives a founding member's ID from what all founders are told, so
// that they agree without talking. It is never 0.
func memberID(urls []url.URL, token string) uint64 {
	h := sha256.New()
	for _, u := range slices.Sorted(slices.Values(urlStrings(urls))) {
		fmt.Fprintf(h, "%s\n", u)
	}
	fmt.Fprintf(h, "token %s\n", token)
	return binary.BigEndian.Uint64(h.Sum(nil)) | 1
}

func clusterID(members []fsm.Member) uint64 {
	h := sha256.New()
	for _, m := range members {
		fmt.Fprintf(h, "%d\n", m.ID)
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) | 1
}

func urlStrings(urls []url.URL) []string {
	out := make([]string, len(urls))
	for i := range urls {
		out[i] = urls[i].String()
	}
	return out
}
