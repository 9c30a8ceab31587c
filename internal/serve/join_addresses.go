package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/fault"
	"leasehold.dev/server"
)

// clientPorts are the ports on which members on one machine serve clients, one
// after another; members are served on the next one. The first is the default, the
// others are those of etcd's own examples.
var clientPorts = []int{2379, 22379, 32379, 42379, 52379, 62379, 12379}

// chosenFile holds, in the data directory, the addresses that were chosen for
// want of flags, so that a restart chooses the same.
const chosenFile = "join.json"

// addresses are those that were chosen.
type addresses struct {
	Client string `json:"client"`
	Peer   string `json:"peer"`
}

// chooseAddresses chooses the name, the data directory and the addresses that were not
// given. It may choose anew after a restart only if nothing was kept.
func (j *joiner) chooseAddresses(cfg server.Config) (server.Config, error) {
	if j.addressesGiven {
		return j.setName(cfg), nil
	}
	host, err := j.ownAddress()
	if err != nil {
		return cfg, err
	}
	if j.nameGiven || j.dirGiven {
		return j.addressesIn(cfg, host)
	}
	// The directory's name tells the addresses: one that is left from an earlier
	// start, and whose ports nobody has taken, goes before a new one.
	for _, old := range []bool{true, false} {
		for _, port := range clientPorts {
			c := j.setName(choose(host, port).in(cfg))
			_, err := os.Stat(c.DataDir)
			if (err == nil) == old && j.reservePorts(host, port) {
				return j.logChosen(c), nil
			}
		}
	}
	return cfg, errNoPorts
}

var errNoPorts = errors.New("found no free ports to listen on; give --listen-client-urls and " +
	"--listen-peer-urls")

// addressesIn chooses addresses for a member whose directory is given.
func (j *joiner) addressesIn(cfg server.Config, host string) (server.Config, error) {
	file := filepath.Join(cfg.DataDir, chosenFile)
	if data, err := os.ReadFile(file); err == nil {
		var c addresses
		if err := json.Unmarshal(data, &c); err != nil || c.Client == "" || c.Peer == "" {
			return cfg, fmt.Errorf("%s does not say which addresses were chosen; remove it, and "+
				"give --listen-client-urls and --listen-peer-urls", file)
		}
		return j.logChosen(j.setName(c.in(cfg))), nil
	}
	for _, port := range clientPorts {
		if !j.reservePorts(host, port) {
			continue
		}
		c := choose(host, port)
		c.secure(cfg)
		if err := c.save(cfg.DataDir, file); err != nil {
			return cfg, fmt.Errorf("keep the addresses chosen: %w", err)
		}
		return j.logChosen(j.setName(c.in(cfg))), nil
	}
	return cfg, errNoPorts
}

// setName gives the member a name of its own, and a directory of that name.
func (j *joiner) setName(cfg server.Config) server.Config {
	if !j.nameGiven {
		u := cfg.URLs.AdvertisePeer[0]
		cfg.Name = strings.NewReplacer(":", "-", ",", "-", "=", "-", "/", "-").
			Replace(u.Hostname() + "-" + u.Port())
		if !j.dirGiven {
			cfg.DataDir = cfg.Name + ".leasehold"
		}
	}
	return cfg
}

func (j *joiner) logChosen(cfg server.Config) server.Config {
	j.log.Info("chose addresses, because no flags set "+
		"them", "name", cfg.Name, "data-dir", cfg.DataDir,
		"listen-client-urls", joinURLs(cfg.URLs.ListenClient),
		"listen-peer-urls", joinURLs(cfg.URLs.ListenPeer))
	return cfg
}

func choose(host string, port int) addresses {
	return addresses{
		Client: "http://" + net.JoinHostPort(host, strconv.Itoa(port)),
		Peer:   "http://" + net.JoinHostPort(host, strconv.Itoa(port+1)),
	}
}

// secure makes the addresses ones with TLS where the member has certificates.
func (c *addresses) secure(cfg server.Config) {
	for _, side := range []struct {
		url *string
		tls server.TLS
	}{{&c.Client, cfg.ClientTLS}, {&c.Peer, cfg.PeerTLS}} {
		rest, plain := strings.CutPrefix(*side.url, "http://")
		if plain && (side.tls.Auto || side.tls.CertFile != "") {
			*side.url = "https://" + rest
		}
	}
}

// in returns the configuration with the addresses.
func (c addresses) in(cfg server.Config) server.Config {
	c.secure(cfg)
	for _, a := range []struct {
		text string
		to   []*[]url.URL
	}{
		{c.Client, []*[]url.URL{&cfg.URLs.ListenClient, &cfg.URLs.AdvertiseClient}},
		{c.Peer, []*[]url.URL{&cfg.URLs.ListenPeer, &cfg.URLs.AdvertisePeer}},
	} {
		u, err := url.Parse(a.text)
		if err != nil {
			continue // Validate says that there is no address
		}
		for _, list := range a.to {
			*list = []url.URL{*u}
		}
	}
	return cfg
}

// save keeps the addresses, whole or not at all.
func (c addresses) save(dir, file string) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// ownAddress returns this machine's address as the cluster sees it. Nothing is sent.
func (j *joiner) ownAddress() (string, error) {
	var failures []error
	for _, e := range j.endpoints {
		at, _ := endpoint.Parse(e) // the flag has checked it
		conn, err := net.Dial("udp", at.Address)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		addr, ok := conn.LocalAddr().(*net.UDPAddr)
		_ = conn.Close()
		if ok {
			return addr.IP.String(), nil
		}
	}
	return "", fmt.Errorf("--join %s: found no address of this machine to use; give "+
		"--listen-client-urls and --listen-peer-urls: %w", strings.Join(j.endpoints, ","),
		fault.Join(failures...))
}

// reservePorts reports whether a port and the next one can be listened on, and if so
// reserves them, until release: by the UDP port of the same number, which nobody
// else has a use for. Members that are started together would else choose the
// same, and one would take the other's place.
func (j *joiner) reservePorts(host string, port int) bool {
	for _, p := range []int{port, port + 1} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	c, err := net.ListenPacket("udp", net.JoinHostPort(host, strconv.Itoa(port+1)))
	if err != nil {
		return false
	}
	j.reserved = c
	return true
}

// release gives up what was reserved.
func (j *joiner) release() {
	if j.reserved != nil {
		_ = j.reserved.Close()
	}
}
