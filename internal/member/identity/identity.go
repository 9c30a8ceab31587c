// Package identity determines the identity of a member. A member can found a cluster, join one,
// continue as the member recorded in its data directory, or restore a backup as the first member of
// a new cluster. The package recognizes other members by the incarnations of their data. It detects
// whether this member has lost its own data, is a copy, or needs another release.
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

// Config determines which member this process can become. An existing data directory overrides it.
type Config struct {
	Name, DataDir string
	// Initial maps the name of each initial member, including this one, to its peer URLs.
	Initial       map[string][]url.URL
	AdvertisePeer []url.URL
	// Token is an input to the cluster's ID.
	Token string
	// Existing means that the member joins a cluster instead of founding one.
	Existing bool
	Files    storage.FS // nil means the machine's files
	Logger   *slog.Logger
	// Machine configures the state, including the cluster versions that the member supports.
	Machine fsm.Config
}

// CheckBootstrap returns an error if this member cannot be started for the first time. It must be a
// member of the initial cluster. Validate does not check this, because a member that has data
// ignores the initial cluster, which might be out of date.
func (c Config) CheckBootstrap() error {
	members := c.Initial
	urls, ok := members[c.Name]
	if !ok {
		return fmt.Errorf("%w: --initial-cluster does not list member %q; add %s=%s or correct --name",
			ErrConfig, c.Name, c.Name, listen.JoinURLs(c.AdvertisePeer))
	}
	want, got := portsOf(c.AdvertisePeer), portsOf(urls)
	if !slices.Equal(want, got) {
		return fmt.Errorf("%w: --initial-cluster contains %s=%s, "+
			"but --initial-advertise-peer-urls is %s; make them the same",
			ErrConfig, c.Name, listen.JoinURLs(urls), listen.JoinURLs(c.AdvertisePeer))
	}
	return checkShared(members)
}

// portsOf returns the parts of a member's URLs that must be the same in two lists. It omits host
// names, because the lists can name the same host differently.
func portsOf(urls []url.URL) []string {
	var ports []string
	for _, u := range urls {
		ports = append(ports, u.Scheme+":"+u.Port())
	}
	slices.Sort(ports)
	return ports
}

// checkShared rejects founders that share a URL. If two founders had the same URLs, they would have
// the same ID, and Raft ends the process if its first voters include the same member twice.
func checkShared(members map[string][]url.URL) error {
	owner := make(map[string]string) // by URL
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
