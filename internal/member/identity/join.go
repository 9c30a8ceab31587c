package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/internal/version"
)

// describeTimeout is how long a joining member waits for each response.
const describeTimeout = 3 * time.Second

// join prepares an empty data directory for a member that has been added to a running cluster. The
// member gets its identity from the other members, and later its state from the leader's snapshot.
// If the directory already has an identity, join keeps it.
func (b *Booted) join(c Config, way transport.Way, id storage.Identity) error {
	d, err := describe(c, way, id)
	if err != nil {
		return fmt.Errorf("join a cluster: %w", err)
	}
	if err := d.joinable(c); err != nil {
		return fmt.Errorf("join a cluster: %w", err)
	}
	b.Known = d.Members
	b.Machine = fsm.New(c.Machine)
	self, err := d.find(c.Initial[c.Name])
	if err != nil {
		return fmt.Errorf("join a cluster: %w", err)
	}
	switch {
	case id.Member == 0 && self.Incarnation != 0,
		id.Member == self.ID && self.Incarnation != 0 && self.Incarnation != id.Incarnation:
		return fmt.Errorf("join a cluster: cluster %x expects member %x to have different data: %w",
			d.Cluster, self.ID, LostData(c.DataDir))
	case id.Member == 0:
		err := b.Disk.Bootstrap(storage.Identity{
			Cluster: d.Cluster, Member: self.ID, Name: c.Name,
			Incarnation: newIncarnation(), CreatedUnixMilli: time.Now().UnixMilli(),
		}, nil)
		if err != nil {
			return err
		}
	case id.Member != self.ID || id.Cluster != d.Cluster:
		return fmt.Errorf("%w: the data directory belongs to member %x of cluster %x, but these "+
			"peer URLs belong to member %x of cluster %x; remove the data directory "+
			"to join as that member", ErrConfig, id.Member, id.Cluster, self.ID, d.Cluster)
	}
	known := b.Disk.Peers()
	known.Assembled = true // this member founds nothing, so it does not have to wait for others
	return b.Disk.SavePeers(known)
}

// describe requests the member list from each of the other initial members in turn, until a list
// contains this member. A member might not have applied the addition of this member yet, or might
// still list its predecessor at these URLs.
func describe(c Config, way transport.Way, id storage.Identity) (description, error) {
	self, ok := c.Initial[c.Name]
	if !ok {
		return description{}, c.CheckBootstrap()
	}
	var failures []error
	var without *description // a list that does not contain this member
	for name, urls := range sortedMembers(c.Initial) {
		if name == c.Name {
			continue
		}
		for _, u := range urls {
			d, err := describeOne(u, way)
			if err != nil {
				failures = append(failures, fmt.Errorf("member %s at %s: %w", name, u.String(), err))
				continue
			}
			m, err := d.find(self)
			if err == nil && (m.Incarnation == 0 || m.Incarnation == id.Incarnation) {
				return d, nil
			}
			without = &d
			break
		}
	}
	if without != nil {
		return *without, nil
	}
	if len(failures) == 0 {
		return description{}, fmt.Errorf("%w: --initial-cluster lists no other member to contact; add "+
			"the members of the cluster", ErrConfig)
	}
	return description{}, fmt.Errorf("no other member responded at its peer URL: %w",
		errors.Join(failures...))
}

// Reach checks whether a member with this configuration can join. It returns nil if at least one
// member responds at its peer URLs and belongs to the cluster. It queries all members concurrently.
// The error is ErrUnsupportedVersion if this release does not support the cluster's version.
func Reach(
	c Config, way transport.Way, members map[string][]url.URL, cluster uint64,
) error {
	fits := func(d description) error {
		if d.Cluster != cluster {
			return fmt.Errorf("the member there belongs to cluster %x, not cluster %x",
				d.Cluster, cluster)
		}
		return d.joinable(c)
	}
	outcomes := make(chan error, len(members))
	for name, urls := range members {
		go func() { outcomes <- reachOne(name, urls, way, fits) }()
	}
	var failures []error
	for range members {
		err := <-outcomes
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	slices.SortFunc(failures, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(failures...)
}

func reachOne(
	name string, urls []url.URL, way transport.Way, fits func(description) error,
) error {
	var failures []error
	for _, u := range urls {
		d, err := describeOne(u, way)
		if err == nil {
			err = fits(d)
		}
		if err == nil {
			return nil
		}
		failures = append(failures, fmt.Errorf("member %s at %s: %w", name, u.String(), err))
	}
	return errors.Join(failures...)
}

// sortedMembers yields members in name order.
func sortedMembers(members map[string][]url.URL) func(func(string, []url.URL) bool) {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare)
	return func(yield func(string, []url.URL) bool) {
		for _, name := range names {
			if !yield(name, members[name]) {
				return
			}
		}
	}
}

func describeOne(u url.URL, way transport.Way) (description, error) {
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	text, err := transport.Describe(ctx, u, way)
	if err != nil {
		return description{}, err
	}
	var d description
	if err := json.Unmarshal(text, &d); err != nil || d.Cluster == 0 || len(d.Members) == 0 {
		return description{}, fmt.Errorf("its response %q contains no cluster ID", text)
	}
	return d, nil
}

// find returns the member with the given peer URLs.
func (d description) find(urls []url.URL) (fsm.Member, error) {
	want := listen.URLTexts(urls)
	slices.Sort(want)
	for _, m := range d.Members {
		have := slices.Clone(m.PeerURLs)
		slices.Sort(have)
		if slices.Equal(want, have) {
			return m, nil
		}
	}
	return fsm.Member{}, fmt.Errorf("%w: cluster %x has no member with the peer URLs %v; add it "+
		"first (leasehold member add), or use --join", ErrConfig, d.Cluster, want)
}

// description is a member's response to a member that wants to join.
type description struct {
	Cluster uint64
	Members []fsm.Member
	Version byte // cluster version
}

// joinable returns an error if a member running this release cannot join the cluster.
func (d description) joinable(c Config) error {
	if c.Machine.Versions.Has(d.Version) {
		return nil
	}
	why := fmt.Errorf("cluster %x has version %s", d.Cluster, version.Name(d.Version))
	return UnsupportedVersion(why, c.DataDir)
}
