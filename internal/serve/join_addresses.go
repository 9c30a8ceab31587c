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
	"leasehold.dev/internal/listen"
	"leasehold.dev/server"
)

// clientPorts are the client ports for members on one machine, in order of preference. The peer
// port of a member is its client port plus one. The first port is the default. The others come from
// etcd's examples.
var clientPorts = []int{2379, 22379, 32379, 42379, 52379, 62379, 12379}

// chosenFile is the file in the data directory that stores the chosen addresses, so that a restart
// uses them again.
const chosenFile = "join.json"

// addresses are the chosen addresses.
type addresses struct {
	Client string `json:"client"`
	Peer   string `json:"peer"`
}

// chooseAddresses chooses the name, the data directory and the addresses unless they were given.
// After a restart, it chooses new addresses only if none are stored.
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
	// The default directory's name contains the addresses. Prefer a directory from an earlier start
	// to a new one, if its ports are free.
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

var errNoPorts = errors.New("found no free ports to listen on; set --listen-client-urls and " +
	"--listen-peer-urls")

// addressesIn chooses the addresses of a member with a given directory.
func (j *joiner) addressesIn(cfg server.Config, host string) (server.Config, error) {
	file := filepath.Join(cfg.DataDir, chosenFile)
	if data, err := os.ReadFile(file); err == nil {
		var c addresses
		if err := json.Unmarshal(data, &c); err != nil || c.Client == "" || c.Peer == "" {
			return cfg, fmt.Errorf("cannot read the chosen addresses from %s; remove it, and "+
				"set --listen-client-urls and --listen-peer-urls", file)
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
			return cfg, fmt.Errorf("save the chosen addresses: %w", err)
		}
		return j.logChosen(j.setName(c.in(cfg))), nil
	}
	return cfg, errNoPorts
}

// setName sets the default name, and a data directory named after it.
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
	j.log.Info("chose addresses, because none were "+
		"set", "name", cfg.Name, "data-dir", cfg.DataDir,
		"listen-client-urls", listen.JoinURLs(cfg.URLs.ListenClient),
		"listen-peer-urls", listen.JoinURLs(cfg.URLs.ListenPeer))
	return cfg
}

func choose(host string, port int) addresses {
	return addresses{
		Client: "http://" + net.JoinHostPort(host, strconv.Itoa(port)),
		Peer:   "http://" + net.JoinHostPort(host, strconv.Itoa(port+1)),
	}
}

// secure changes the client or peer URL to https if that side has a certificate.
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

// in returns cfg with the addresses.
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
			continue // Validate reports the missing address
		}
		for _, list := range a.to {
			*list = []url.URL{*u}
		}
	}
	return cfg
}

// save stores the addresses atomically.
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

// ownAddress returns this machine's address as seen from the cluster. It sends nothing.
func (j *joiner) ownAddress() (string, error) {
	var failures []error
	for _, e := range j.endpoints {
		at, _ := endpoint.Parse(e) // valid: checked when the flag was set
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
	return "", fmt.Errorf("--join %s: found no usable address of this machine; set "+
		"--listen-client-urls and --listen-peer-urls: %w", strings.Join(j.endpoints, ","),
		fault.Join(failures...))
}

// reservePorts reports whether a port and the next one are free. If so, it reserves them until
// release is called. To do so, it binds the UDP ports with the same numbers, which have no other
// use. Without this, members that start at the same time would choose the same ports.
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

// release releases the reserved ports.
func (j *joiner) release() {
	if j.reserved != nil {
		_ = j.reserved.Close()
	}
}
