package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
)

// describeTimeout is how long a member that joins waits for one answer.
const describeTimeout = 3 * time.Second

// join prepares an empty data directory for a member that was added to a
// running cluster: it asks the others who it is, and leaves the state to the
// snapshot that the leader will send. A directory that got this far before keeps
// its identity.
func (b *booted) join(c Config, dial *tls.Config, id storage.Identity) error {
	d, err := describe(c, dial)
	if err != nil {
		return fmt.Errorf("join a cluster: %w", err)
	}
	b.known = d.Members
	b.machine = fsm.New(machineConfig(c))
	self, err := d.find(c.InitialMembers()[c.Name])
	if err != nil {
		return fmt.Errorf("join a cluster: %w", err)
	}
	switch {
	case id.Member == 0:
		return b.disk.Bootstrap(storage.Identity{
			Cluster: d.Cluster, Member: self.ID, Name: c.Name,
			CreatedUnixMilli: time.Now().UnixMilli(),
		}, nil)
	case id.Member != self.ID || id.Cluster != d.Cluster:
		return fmt.Errorf("%w: the data directory belongs to member %x of cluster %x, but the "+
			"cluster knows these peer URLs as member %x of cluster %x; remove the data directory "+
			"to join as that one", ErrConfig, id.Member, id.Cluster, self.ID, d.Cluster)
	}
	return nil
}

// describe asks the other initial members, one after another, who the members
// are.
func describe(c Config, dial *tls.Config) (description, error) {
	if _, ok := c.InitialMembers()[c.Name]; !ok {
		return description{}, c.CheckBootstrap()
	}
	var failures []error
	for name, urls := range sortedMembers(c.InitialMembers()) {
		if name == c.Name {
			continue
		}
		for _, u := range urls {
			d, err := describeOne(u, dial)
			if err == nil {
				return d, nil
			}
			failures = append(failures, fmt.Errorf("member %s at %s: %w", name, u.String(), err))
		}
	}
	if len(failures) == 0 {
		return description{}, fmt.Errorf("%w: --initial-cluster names no other member to ask; "+
			"add those of the cluster", ErrConfig)
	}
	return description{}, fmt.Errorf("no member of --initial-cluster told who the members are: %w",
		errors.Join(failures...))
}

// sortedMembers yields members in the order of their names.
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

func describeOne(u url.URL, dial *tls.Config) (description, error) {
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	text, err := transport.Describe(ctx, u, dial)
	if err != nil {
		return description{}, err
	}
	var d description
	if err := json.Unmarshal(text, &d); err != nil || d.Cluster == 0 || len(d.Members) == 0 {
		return description{}, fmt.Errorf("its answer %q says nothing of a cluster", text)
	}
	return d, nil
}

// find returns the member with the given peer URLs.
func (d description) find(urls []url.URL) (fsm.Member, error) {
	want := urlStrings(urls)
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
