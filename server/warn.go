package server

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
)

// warnOfAddresses logs warnings about addresses that are legal but probably a mistake.
func (s *Server) warnOfAddresses() {
	for _, u := range s.cfg.URLs.ListenPeer {
		switch t := s.cfg.PeerTLS; {
		case local(u) || s.cfg.PeerTokenFile != "":
		case !listen.IsTLS(u):
			s.cfg.Logger.Warn("the peer URL is reachable from other machines without TLS: any "+
				"client that connects is trusted as a member; set --peer-token-file, or "+
				"--peer-cert-file, --peer-key-file and --peer-trusted-ca-file", "url", u.String())
		case len(t.AllowedCNs) == 0 && len(t.AllowedHostnames) == 0:
			s.cfg.Logger.Warn("the peer URL is reachable from other machines and accepts any "+
				"certificate from the CA: any client with one is trusted as a member; set --peer-token-file, "+
				"--peer-cert-allowed-cn or --peer-cert-allowed-hostname", "url", u.String())
		}
	}
	for flag, urls := range map[string][]url.URL{
		"--advertise-client-urls":       s.cfg.URLs.AdvertiseClient,
		"--initial-advertise-peer-urls": s.cfg.URLs.AdvertisePeer,
	} {
		for _, u := range urls {
			if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
				s.cfg.Logger.Warn("this member advertises an unspecified address, which other "+
					"machines resolve to themselves; advertise one that they can reach",
					"flag", flag, "url", u.String())
			}
		}
	}
}

// warnOfMembersOnce logs warnings about the members once this member has their current state, and
// later about changes. It waits because a restart replays earlier states, and warnings about those
// would be useless.
func (s *Server) warnOfMembersOnce(ctx context.Context) {
	for s.node.Confirm(ctx) != nil {
		if !backoff.Sleep(ctx, time.Second) {
			return
		}
	}
	s.core.inbox.task(func() {
		s.core.began.current = true
		s.warnOpenURLs()
		s.warnOfMembers()
	})
}

// warnOpenURLs logs one warning if there are client URLs that anyone can use.
func (s *Server) warnOpenURLs() {
	if s.cfg.Access.Insecure {
		return
	}
	var open []string
	plain, anybody := false, false
	certificates := s.cfg.ClientTLS.TrustedCAFile != "" || s.cfg.ClientTLS.ClientCertAuth
	for _, u := range slices.Concat(s.cfg.URLs.ListenClient, s.cfg.URLs.ListenClientHTTP) {
		noTLS := !listen.IsTLS(u)
		noAccess := (noTLS || !certificates) && !s.node.View().Access.Enabled()
		if !local(u) && (noTLS || noAccess) {
			open = append(open, u.String())
			plain, anybody = plain || noTLS, anybody || noAccess
		}
	}
	var missing []string
	if plain {
		missing = append(missing, "TLS (--cert-file, --key-file)")
	}
	if anybody {
		missing = append(missing, "access control (leasehold init-access)")
	}
	if len(missing) > 0 {
		s.cfg.Logger.Warn("anyone who can reach this member can read and change its data: set up "+
			"what is missing, or set --insecure if only trusted clients can reach it",
			"missing", missing, "urls", open)
	}
}

// warnOfMembers logs warnings about memberships that are legal but probably a mistake.
func (s *Server) warnOfMembers() {
	members := s.node.View().Members
	warnOfVoters(s.cfg.Logger, nil, members)
	s.warnOfQuota()
	for _, m := range members {
		if m.ID != s.node.member && m.Name == s.cfg.Name {
			s.cfg.Logger.Warn("another member has the same name; set a different --name on each",
				"name", m.Name, "peer-urls", m.PeerURLs)
		}
	}
}

// warnOfQuota logs a warning if this member's quota is not the one in effect, or is too small for
// some requests.
func (s *Server) warnOfQuota() {
	own, least := s.cfg.Limits.QuotaBackendBytes, s.node.View().Quota
	if least > 0 && least != own {
		s.cfg.Logger.Warn("another member has a smaller quota, which applies to all; set the "+
			"same --quota-backend-bytes on each", "quota-bytes", least, "given", own)
	}
	if most := s.cfg.Limits.MaxRequestBytes; least > 0 && most > least {
		s.cfg.Logger.Warn("the quota is too small for the largest requests, which are rejected; "+
			"raise --quota-backend-bytes or lower --max-request-bytes", "quota-bytes", least,
			"max-request-bytes", most)
	}
}

// warnOfVoters logs a warning about an even number of voters, unless the number is unchanged. It
// ignores two voters, because a third one is usually about to be added.
func warnOfVoters(log *slog.Logger, before, now []fsm.Member) {
	if n := voters(now); n > 2 && n%2 == 0 && n != voters(before) {
		log.Warn("an even number of voters tolerates no more failures than one fewer would; add "+
			"or remove a member", "voters", n, "may-be-lost", n/2-1)
	}
}

func voters(members []fsm.Member) (n int) {
	for i := range members {
		if !members[i].Learner {
			n++
		}
	}
	return n
}

// hostNames returns the lowercase names at which clients reach a member.
func hostNames(u URLs) []string {
	var names []string
	for _, u := range slices.Concat(u.AdvertiseClient, u.ListenClient, u.ListenMetrics) {
		names = append(names, strings.ToLower(u.Hostname()))
	}
	return names
}

// local reports whether a URL can be reached only from this machine.
func local(u url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "unix" || u.Scheme == "unixs" || u.Hostname() == "localhost" ||
		ip != nil && ip.IsLoopback()
}
