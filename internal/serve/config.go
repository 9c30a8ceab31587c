package serve

import (
	"fmt"
	"net"
	"net/url"
	"slices"

	"leasehold.dev/internal/listen"
	"leasehold.dev/server"
)

// config returns the configuration specified by the flags, and warnings about defaults that it had
// to guess. It does not validate the configuration.
func (f *flags) config(hostname string) (server.Config, []string, error) {
	c := f.cfg
	if c.DataDir == "" {
		c.DataDir = c.Name + ".leasehold"
	}
	c.Cluster.State = f.state
	defaults := server.DefaultConfig()
	var err error
	if c.Compaction, err = f.compaction(); err != nil {
		c.Compaction, err = defaults.Compaction, usageError("%w", err)
	}
	if c.Limits.QuotaBackendBytes == 0 {
		c.Limits.QuotaBackendBytes = defaults.Limits.QuotaBackendBytes
	}
	if c.Raft.SnapshotCount == 0 { // etcd interprets 0 as the default
		c.Raft.SnapshotCount = defaults.Raft.SnapshotCount
	}
	// As in etcd, the client and peer sides use the same TLS versions and cipher suites.
	c.PeerTLS.CipherSuites = c.ClientTLS.CipherSuites
	c.PeerTLS.MinVersion, c.PeerTLS.MaxVersion = c.ClientTLS.MinVersion, c.ClientTLS.MaxVersion
	c.PeerTLS.SelfSignedYears = c.ClientTLS.SelfSignedYears

	var warnings []string
	u := &c.URLs
	for _, a := range []struct {
		name      string
		advertise *[]url.URL
		listen    []url.URL
		listening string
	}{
		{"advertise-client-urls", &u.AdvertiseClient, u.ListenClient, "listen-client-urls"},
		{"initial-advertise-peer-urls", &u.AdvertisePeer, u.ListenPeer, "listen-peer-urls"},
	} {
		if f.given[a.name] || !f.given[a.listening] {
			continue
		}
		var guessed bool
		*a.advertise, guessed = reachable(a.listen, hostname)
		if guessed {
			warnings = append(warnings, fmt.Sprintf("--%s is not set; advertising %s",
				a.name, listen.JoinURLs(*a.advertise)))
		}
	}
	return c, warnings, err
}

// reachable returns the URLs at which others can reach a member that listens on us. It replaces
// unspecified addresses with hostname. On another machine, an unspecified address would refer to
// that machine.
func reachable(us []url.URL, hostname string) (out []url.URL, guessed bool) {
	for _, u := range us {
		ip := net.ParseIP(u.Hostname())
		network := u.Scheme == "http" || u.Scheme == "https"
		if network && (u.Hostname() == "" || ip != nil && ip.IsUnspecified()) {
			u.Host = net.JoinHostPort(hostname, u.Port())
			guessed = true
		}
		out = append(out, u)
	}
	same := func(a, b url.URL) bool { return a.String() == b.String() }
	return slices.CompactFunc(out, same), guessed
}
