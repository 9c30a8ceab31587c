// Package identity determines the identity of a member: it founds a cluster, joins one, or
// continues as the member of its data directory, and restores a backup as the first member of a new
// one. It recognizes the other members by the incarnations of their data, and detects whether this
// member has lost its own data, is a copy, or needs another release.
package identity

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/storage"
)

// Config determines which member this may become. An existing data directory overrides it.
type Config struct {
	Name, DataDir string
	// Initial maps the name of each initial member to its peer URLs, this one included.
	Initial       map[string][]url.URL
	AdvertisePeer []url.URL
	// Token goes into the cluster's ID.
	Token string
	// If Existing is set, the member joins a cluster rather than founding one.
	Existing bool
	Files    storage.FS // nil for the machine's
	Logger   *slog.Logger
	// Machine configures the state, including the cluster versions that the member supports.
	Machine fsm.Config
}

// CheckBootstrap returns an error if this member cannot be started for the first time: it must be a
// member of the initial cluster. Validate does not check this, because a member with data ignores
// the initial cluster, which may be out of date.
func (c Config) CheckBootstrap() error {
	members := c.Initial
	urls, ok := members[c.Name]
	if !ok {
		return fmt.Errorf("%w: --initial-cluster does not list member %q; add %s=%s or correct --name",
			ErrConfig, c.Name, c.Name, listen.JoinURLs(c.AdvertisePeer))
	}
	want, got := portsOf(c.AdvertisePeer), portsOf(urls)
	if !slices.Equal(want, got) {
		return fmt.Errorf("%w: --initial-cluster says %s=%s, but --initial-advertise-peer-urls is %s; "+
			"make them the same",
			ErrConfig, c.Name, listen.JoinURLs(urls), listen.JoinURLs(c.AdvertisePeer))
	}
	return checkShared(members)
}

// portsOf returns what two lists of URLs for one member must have in common. Host names are left
// out, because one may be an alias or the address of the other.
func portsOf(urls []url.URL) []string {
	var ports []string
	for _, u := range urls {
		ports = append(ports, u.Scheme+":"+u.Port())
	}
	slices.Sort(ports)
	return ports
}

// checkShared rejects founders with a common URL. With the same URLs they would have the same ID,
// and Raft ends a process whose first voters include one twice.
func checkShared(members map[string][]url.URL) error {
	owner := make(map[string]string) // of a URL
	for _, name := range slices.Sorted(maps.Keys(members)) {
		for _, u := range listen.URLTexts(members[name]) {
			if other, taken := owner[u]; taken && other != name {
				return fmt.Errorf("%w: members %s and %s have the same URL %s in --initial-cluster; "+
					"give each its own", ErrConfig, other, name, u)
			}
			owner[u] = name
		}
	}
	return nil
}
