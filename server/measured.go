package server

import (
	"context"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/lease"
)

// measured returns the parts of the member that its metrics read.
func (s *Server) measured() *metrics.Member {
	n := s.node
	return &metrics.Member{
		ID: n.member, View: n.View, Status: n.status.Load, State: n.stats.Load,
		Disk: n.disk, Peers: s.peers,
		Watchers:       func() int { return n.hub.Stats().Watchers },
		DiskFull:       n.writer.full.Load,
		Copied:         s.peers.Copies,
		Panics:         s.panics.Ended,
		StorageVersion: n.storageVersion,
		Principals:     s.cfg.Access.MetricsPrincipals,
		Rank: func(ctx context.Context, r *access.Ranking) bool {
			return n.InspectHere(ctx, func(*lease.Lessor, uint64) {
				n.replica.Machine().Rank(r)
			}) == nil
		},
		Refusals:     n.limits.Refusals,
		Certificates: s.cfg.certificates(),
		Backups:      n.keeper,
	}
}

// certificates returns the certificate files with their uses.
func (c *Config) certificates() (list []metrics.Certificate) {
	for _, f := range []metrics.Certificate{
		{Path: c.ClientTLS.CertFile, Use: "client"},
		{Path: c.ClientTLS.ClientCertFile, Use: "client-dial"},
		{Path: c.ClientTLS.TrustedCAFile, Use: "client-ca"},
		{Path: c.PeerTLS.CertFile, Use: "peer"},
		{Path: c.PeerTLS.ClientCertFile, Use: "peer-dial"},
		{Path: c.PeerTLS.TrustedCAFile, Use: "peer-ca"},
	} {
		if f.Path != "" {
			list = append(list, f)
		}
	}
	return list
}
