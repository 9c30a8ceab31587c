package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"sort"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// minCheckpointInterval is how long silent leases gather for one entry anyway.
const (
	minCheckpointInterval  = 100 * time.Millisecond
	checkpointIntervalRule = "--lease-checkpoint-interval must be at least 100ms: silence is always " +
		"replicated, or leases of dead holders would live for ever"
)

// firstIndex is the index and the term of the snapshot that every founding
// member begins with. All founders write the same, so no entry is needed to
// tell them of each other.
const firstIndex = 1

// booted is a member that is ready to start.
type booted struct {
	disk    *storage.Disk
	machine *fsm.Machine
	// known are the members that another one told of, when this one has no state yet.
	known []fsm.Member
}

// boot opens the data directory, and loads the state from the newest snapshot.
// An empty directory becomes a founder's, or that of a member that joins;
// way is how to reach the others.
func boot(c Config, way transport.Way) (booted, error) {
	if err := refuseUnusable(c.DataDir); err != nil {
		return booted{}, fmt.Errorf("open data directory %q: %w", c.DataDir, err)
	}
	disk, err := storage.Open(storage.Config{Dir: c.DataDir, FS: c.Host.Files(), Logger: c.Logger})
	if err != nil {
		err = fmt.Errorf("open data directory %q: %w", c.DataDir, err)
		return booted{}, otherRelease(err, c.DataDir)
	}
	b := booted{disk: disk}
	if err := b.load(c, way); err != nil {
		return booted{}, otherRelease(errors.Join(err, disk.Close()), c.DataDir)
	}
	return b, nil
}

func (b *booted) load(c Config, way transport.Way) error {
	id, founded := b.disk.Identity()
	snap, err := b.disk.Snapshot()
	if err != nil {
		return err
	}
	if raft.IsEmptySnap(snap) {
		// Identity without snapshot is what a crash in the middle of founding leaves, and
		// what a member has that joined and was not sent the state yet.
		half, err := halfFounded(b.disk)
		if err != nil {
			return err
		}
		if !half && (founded || c.Cluster.State == ExistingCluster) {
			return b.join(c, way, id)
		}
		if err := found(b.disk, c, half); err != nil {
			return fmt.Errorf("found a cluster in %q: %w", c.DataDir, err)
		}
	}
	b.machine, err = restore(b.disk, machineConfig(c))
	return err
}

// versions returns the cluster versions that the member speaks.
func (c Config) versions() version.Range { return cmp.Or(c.Versions, version.Spoken) }

// founders returns the members that found the cluster, in ID order, with their URLs in an order
// that does not depend on the flags: all begin with the same state.
func founders(c Config) []fsm.Member {
	var members []fsm.Member
	for name, urls := range c.InitialMembers() {
		members = append(members, fsm.Member{
			ID: memberID(urls, c.Cluster.Token), Name: name,
			PeerURLs: slices.Sorted(slices.Values(urlStrings(urls))),
		})
	}
	sort.Slice(members, func(i, j int) bool { return members[i].ID < members[j].ID })
	return members
}

// found gives an empty data directory its identity, unless it got that far
// before, and its first snapshot.
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
	return writeFirst(disk, members, machineConfig(c))
}

// checkShared refuses founders of whom two have a URL in common. With the same URLs they would have
// the same ID: Raft ends a process that begins with a voter named twice.
func checkShared(members map[string][]url.URL) error {
	owner := make(map[string]string) // of a URL
	for _, name := range slices.Sorted(maps.Keys(members)) {
		for _, u := range urlStrings(members[name]) {
			if other, taken := owner[u]; taken && other != name {
				return fmt.Errorf("%w: members %s and %s have the same URL %s in --initial-cluster; "+
					"give each its own", ErrConfig, other, name, u)
			}
			owner[u] = name
		}
	}
	return nil
}

// sameFounding refuses to complete a founding that was begun with other flags.
func sameFounding(disk *storage.Disk, c Config, members []fsm.Member) error {
	id, _ := disk.Identity()
	if id.Name == c.Name && id.Cluster == c.clusterID(members, id.Incarnation) &&
		id.Member == memberID(c.InitialMembers()[c.Name], c.Cluster.Token) {
		return nil
	}
	return fmt.Errorf("%w: the founding of cluster %x was interrupted here for member %x (%s); "+
		"complete it with the same --name, --initial-advertise-peer-urls, --initial-cluster and "+
		"--initial-cluster-token, or remove the data directory",
		ErrConfig, id.Cluster, id.Member, id.Name)
}

// identify makes disk this member's, among the founders of a cluster. What like does not say,
// the ID of the cluster, say, is made here.
func identify(disk *storage.Disk, c Config, members []fsm.Member, like storage.Identity) error {
	like.Name, like.Incarnation = c.Name, newIncarnation()
	like.Member = cmp.Or(like.Member, memberID(c.InitialMembers()[c.Name], c.Cluster.Token))
	like.Cluster = cmp.Or(like.Cluster, c.clusterID(members, like.Incarnation))
	like.CreatedUnixMilli = time.Now().UnixMilli()
	return disk.Bootstrap(like, confState(members))
}

func writeFirst(disk *storage.Disk, members []fsm.Member, c fsm.Config) error {
	m := fsm.New(c)
	m.Begin(firstIndex, firstIndex)
	for _, n := range members {
		m.AddMember(n)
	}
	// Committing the snapshot sets the hard state to its index and term, in the same step.
	return writeSnapshot(disk, m.Image(), confState(members), 0)
}

func restore(disk *storage.Disk, c fsm.Config) (*fsm.Machine, error) {
	r, err := disk.OpenSnapshot()
	if err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	defer r.Close()
	next, stop := ahead(r.Next)
	defer stop()
	m, err := fsm.Restore(c, func() ([]byte, bool, error) {
		chunk, err := next()
		if errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		return chunk, err == nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("load the snapshot at index %d: %w", r.Index(), err)
	}
	if m.Index() != r.Index() {
		return nil, fmt.Errorf("load the snapshot at index %d: %w: it holds index %d",
			r.Index(), storage.ErrCorrupt, m.Index())
	}
	return m, nil
}

// ahead reads in another goroutine, until stop, one chunk ahead of what next returns. A chunk is
// there until the next one is, as what read returns.
func ahead(read func() ([]byte, error)) (next func() ([]byte, error), stop func()) {
	type result struct {
		chunk []byte
		err   error
	}
	results, done := make(chan result), make(chan struct{})
	wait := beside(func() {
		var room [2][]byte
		for i := 0; ; i = 1 - i {
			chunk, err := read()
			room[i] = append(room[i][:0], chunk...)
			select {
			case results <- result{room[i], err}:
			case <-done:
				return
			}
		}
	})
	next = func() ([]byte, error) {
		r := <-results
		return r.chunk, r.err
	}
	return next, func() { close(done); wait() }
}

// beside runs f in a goroutine, and returns what waits for its end.
func beside(f func()) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	return wg.Wait
}

// machineConfig says nothing of the shortest TTL, and of the most keys: apply would
// depend on it, and members may be told different ones. The API checks them.
func machineConfig(c Config) fsm.Config {
	return fsm.Config{Versions: c.versions(), Beside: beside, Lease: lease.Config{
		CheckpointInterval: lease.TTL(c.Lease.CheckpointInterval.Milliseconds()),
		Untended:           lease.TTL(c.Lease.Untended.Milliseconds()),
		SpreadRate:         c.Lease.SpreadRate,
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

// clusterID is derived from the founders, who do not talk before they agree on it. One that
// founds alone makes an ID that no other cluster has, so that nobody takes a cluster that it
// founds later, after it has lost its disk, for this one. Founders that would begin with different
// states, because they were told different names of members or speak different cluster versions,
// found different clusters.
func (c Config) clusterID(members []fsm.Member, incarnation uint64) uint64 {
	h := sha256.New()
	for _, m := range members {
		fmt.Fprintf(h, "%d %s\n", m.ID, m.Name)
	}
	if len(members) == 1 {
		fmt.Fprintf(h, "incarnation %x\n", incarnation)
	}
	fmt.Fprintf(h, "version %d\n", c.versions().Oldest)
	return binary.BigEndian.Uint64(h.Sum(nil)) | 1
}

func urlStrings(urls []url.URL) []string {
	out := make([]string, len(urls))
	for i := range urls {
		out[i] = urls[i].String()
	}
	return out
}
