package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"slices"
	"time"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
)

// port is an open listener together with its use.
type port struct {
	net.Listener
	tls *tls.Config // nil if its connections are not encrypted
	use use
}

type use uint8

const (
	useClients use = iota
	useHTTP
	useMetrics
	usePeers
)

// A third of the files that the process can open, within limits, is reserved for the member itself.
// The member needs them for its log and snapshots, and for connections to other members. Otherwise,
// too many client connections would look like a failing disk. peerFiles are for members that
// connect to this one. minClientFiles is the minimum for clients.
const (
	minOwnFiles    = 150
	maxOwnFiles    = 400
	peerFiles      = 50
	minClientFiles = 50
)

// helloTimeout is how long another member has to identify itself after connecting to the peer port.
const helloTimeout = 5 * time.Second

// limits contains the limits on a member's connections and on the memory of its streams.
type limits struct {
	clients, peers *listen.Limit
	memory         uint64 // bytes
}

// newLimits returns a member's share of the process's open files and memory.
func newLimits(members int, log *slog.Logger) (limits, error) {
	files, err := host.OpenFiles()
	if err != nil {
		return limits{}, fmt.Errorf("server: %w", err)
	}
	parts := uint64(max(members, 1))
	share := files / parts
	clients, err := clientShare(share)
	if err != nil {
		return limits{}, err
	}
	advice := fmt.Sprintf("this member's share of the process's open files (ulimit -n) is %d, and "+
		"it needs some of them itself", share)
	peers := listen.NewLimit(peerFiles, advice, log)
	peers.CloseStrangers(helloTimeout)
	out := limits{
		clients: listen.NewLimit(clients, advice, log), peers: peers, memory: host.Memory() / parts,
	}
	out.clients.BoundStrangers(min(clients/2, listen.MostStrangers))
	return out, nil
}

// clientShare returns the maximum number of client connections for this many files.
func clientShare(files uint64) (int, error) {
	const least = minOwnFiles + peerFiles + minClientFiles
	if files < least {
		return 0, fmt.Errorf("server: a member can open %d files, but needs %d; "+
			"raise the limit (ulimit -n, or LimitNOFILE in systemd)", files, least)
	}
	all := int(min(files, math.MaxInt32))
	return all - min(max(all/3, minOwnFiles), maxOwnFiles) - peerFiles, nil
}

// openPorts opens either all urls or none of them. conf is the configuration for encrypted ones.
func (s *Server) openPorts(
	ctx context.Context, urls []url.URL, conf *tls.Config, use use,
) ([]port, error) {
	var all []port
	for _, u := range urls {
		l, err := s.cfg.host.Open(ctx, u)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		o := port{Listener: l, use: use}
		if listen.IsTLS(u) {
			o.tls = conf
		}
		all = append(all, o)
	}
	return all, nil
}

func closeAll(all []port) error {
	var err error
	for _, o := range all {
		err = errors.Join(err, o.Close())
	}
	return err
}

// certified converts t to the corresponding type in package listen. If t requests a self-signed
// certificate, it is created in dir for the hosts of urls.
func (t TLS) certified(dir string, urls []url.URL) (listen.TLS, error) {
	var hosts []string
	for _, u := range urls {
		hosts = append(hosts, u.Host)
	}
	return t.listen().SelfSigned(dir, hosts)
}

// checkTLS is a part of [Config.Validate].
func (c Config) checkTLS() error {
	errs := []error{c.checkRevoked()}
	for _, side := range []struct {
		name, certFlag, urlFlag string
		tls                     TLS
		urls                    []url.URL
	}{
		{
			"client", "--cert-file and --key-file, or --auto-tls", "--listen-client-urls",
			c.ClientTLS,
			slices.Concat(c.URLs.ListenClient, c.URLs.ListenClientHTTP, c.URLs.ListenMetrics),
		},
		{
			"peer", "--peer-cert-file and --peer-key-file, or --peer-auto-tls",
			"--listen-peer-urls", c.PeerTLS, c.URLs.ListenPeer,
		},
	} {
		options := side.tls.listen()
		if err := options.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s TLS: %w", side.name, err))
			continue
		}
		encrypted := false
		for _, u := range side.urls {
			encrypted = encrypted || listen.IsTLS(u)
			if listen.IsTLS(u) && !options.Enabled() {
				errs = append(errs, fmt.Errorf("%s URL %s needs a certificate; set %s",
					side.name, u.String(), side.certFlag))
			}
		}
		if options.Asked() && !encrypted && len(side.urls) > 0 {
			errs = append(errs, fmt.Errorf("TLS settings are set for the %s side, but %s would "+
				"not be encrypted; use https:// in %s and in the advertised URLs, or remove "+
				"the TLS settings",
				side.name, listen.JoinURLs(side.urls), side.urlFlag))
		}
	}
	return errors.Join(errs...)
}

// checkRevoked rejects a revocation list for ports where clients do not present certificates,
// because revoked clients could connect there. The metrics port is exempt, because it serves no
// calls.
func (c Config) checkRevoked() error {
	for _, side := range []struct {
		flag string
		file string
		urls []url.URL
	}{
		{
			"--client-crl-file", c.ClientTLS.CRLFile,
			slices.Concat(c.URLs.ListenClient, c.URLs.ListenClientHTTP),
		},
		{"--peer-crl-file", c.PeerTLS.CRLFile, c.URLs.ListenPeer},
	} {
		for _, u := range side.urls {
			if side.file != "" && u.Scheme == "http" {
				return fmt.Errorf("%s is set, but clients of %s present no certificate; use "+
					"https:// for that address, or omit %s", side.flag, u.String(), side.flag)
			}
		}
	}
	return nil
}
