package server

import (
	"errors"
	"math"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestDefaultConfig checks that the defaults are valid and that Validate does not modify them.
func TestDefaultConfig(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := c.CheckBootstrap(); err != nil {
		t.Fatal(err)
	}
	if other := DefaultConfig(); !reflect.DeepEqual(withoutLogger(c), withoutLogger(other)) {
		t.Error("two defaults differ")
	}
	if got := c.InitialMembers(); len(got) != 1 || got["default"][0].String() !=
		"http://localhost:2380" {
		t.Errorf("members %v", got)
	}
}

func withoutLogger(c Config) Config {
	c.Logger = nil
	return c
}

// TestValidate checks that every invalid setting is rejected with advice. Each case changes one
// default.
func TestValidate(t *testing.T) {
	parse := func(s string) []url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return []url.URL{*u}
	}
	for _, c := range []struct {
		want   string // "" means valid
		change func(*Config)
	}{
		{"set --name", func(c *Config) { c.Name = "" }},
		{"choose another --name", func(c *Config) { c.Name = "a=b" }},
		{"choose another --name", func(c *Config) { c.Name = "a,b" }},
		{"set --data-dir", func(c *Config) { c.DataDir = "" }},
		{"set --initial-cluster-state", func(c *Config) { c.Cluster.State = "" }},
		{"", func(c *Config) { c.Cluster.State = "existing" }},
		{"set --listen-client-urls", func(c *Config) { c.URLs.ListenClient = nil }},
		{"set --advertise-client-urls", func(c *Config) { c.URLs.AdvertiseClient = nil }},
		{"set --initial-advertise-peer-urls", func(c *Config) { c.URLs.AdvertisePeer = nil }},
		{"", func(c *Config) { c.URLs.ListenPeer = nil }},
		{"--listen-client-urls: listen", func(c *Config) { c.URLs.ListenClient = parse("http://a.b:1") }},
		{"--listen-client-http-urls: listen", func(c *Config) {
			c.URLs.ListenClientHTTP = parse("http://a.b:1")
		}},
		{"--listen-peer-urls: listen", func(c *Config) { c.URLs.ListenPeer = parse("http://a.b:1") }},
		{"--listen-metrics-urls: listen", func(c *Config) {
			c.URLs.ListenMetrics = parse("http://a.b:1")
		}},
		{"others can reach", func(c *Config) { c.URLs.AdvertiseClient = parse("http://:1") }},
		{"", func(c *Config) { c.URLs.ListenClient = parse("unix:///tmp/x") }},
		{"client URL unixs:///tmp/x needs a certificate", func(c *Config) {
			c.URLs.ListenClient = parse("unixs:///tmp/x")
		}},
		{"set --cert-file and --key-file", func(c *Config) {
			c.URLs.ListenMetrics = parse("https://127.0.0.1:1")
		}},
		{"set --peer-cert-file", func(c *Config) { c.URLs.ListenPeer = parse("https://127.0.0.1:1") }},
		{"", func(c *Config) {
			c.URLs.ListenClient, c.ClientTLS.Auto = parse("https://127.0.0.1:1"), true
		}},
		{"use https:// in --listen-client-urls", func(c *Config) { c.ClientTLS.Auto = true }},
		{"http://localhost:2379 would not be encrypted", func(c *Config) {
			c.ClientTLS.TrustedCAFile = "x"
		}},
		{"use https:// in --listen-peer-urls", func(c *Config) { c.PeerTLS.ClientCertAuth = true }},
		{"", func(c *Config) {
			c.URLs.ListenClient = append(parse("https://127.0.0.1:1"), parse("http://127.0.0.1:2")...)
			c.ClientTLS.Auto = true
		}},
		{"clients of http://127.0.0.1:2 present no certificate", func(c *Config) {
			c.URLs.ListenClientHTTP = parse("http://127.0.0.1:2")
			c.URLs.ListenClient = parse("https://127.0.0.1:1")
			c.ClientTLS = TLS{Auto: true, ClientCertAuth: true, CRLFile: "x"}
		}},
		// Access to a socket is controlled by its file mode, and the metrics URL accepts no calls.
		{"", func(c *Config) {
			c.URLs.ListenClientHTTP = parse("unix:///tmp/x")
			c.URLs.ListenMetrics = parse("http://127.0.0.1:2")
			c.URLs.ListenClient = parse("https://127.0.0.1:1")
			c.ClientTLS = TLS{Auto: true, ClientCertAuth: true, CRLFile: "x"}
		}},
		{"--peer-crl-file is set", func(c *Config) {
			c.URLs.ListenPeer = append(parse("https://127.0.0.1:1"), parse("http://127.0.0.1:2")...)
			c.PeerTLS = TLS{Auto: true, ClientCertAuth: true, CRLFile: "x"}
		}},
		{"--min-password-length", func(c *Config) { c.Access.MinPassword = 73 }},
		{"--metrics-principals", func(c *Config) { c.Access.MetricsPrincipals = 1001 }},
		{"--max-failed-logins", func(c *Config) { c.Access.MaxFailedLogins = -1 }},
		{"--bcrypt-cost", func(c *Config) { c.Access.BcryptCost = 3 }},
		{"--auth-token-ttl", func(c *Config) { c.Access.TokenTTL = 0 }},
		{"client TLS: ", func(c *Config) { c.ClientTLS.CertFile = "x" }},
		{"peer TLS: ", func(c *Config) { c.PeerTLS.MinVersion = "SSL" }},
		{"--heartbeat-interval", func(c *Config) { c.Raft.Heartbeat = 0 }},
		{"five times", func(c *Config) { c.Raft.ElectionTimeout = 499 * time.Millisecond }},
		{"", func(c *Config) { c.Raft.ElectionTimeout = 500 * time.Millisecond }},
		{"at most 50s", func(c *Config) { c.Raft.ElectionTimeout = 51 * time.Second }},
		{"--snapshot-count", func(c *Config) { c.Raft.SnapshotCount = 0 }},
		{"--max-request-bytes", func(c *Config) { c.Limits.MaxRequestBytes = 0 }},
		{"--max-request-bytes", func(c *Config) { c.Limits.MaxRequestBytes = math.MaxInt64 }},
		{
			"--max-request-bytes 49283072 is too large: with --max-txn-ops 128 a request may take 51380224 " +
				"bytes in the log, but a message to another member (67108864 bytes) has " +
				"room for only 50331648; set at most 48234496",
			func(c *Config) { c.Limits.MaxRequestBytes = 47 << 20 },
		},
		{"--max-request-bytes", func(c *Config) {
			c.Limits.MaxRequestBytes, c.Limits.MaxTxnOps = 42<<20, maxTxnOps
		}},
		{"", func(c *Config) { c.Limits.MaxRequestBytes, c.Limits.MaxTxnOps = 40<<20, maxTxnOps }},
		{"", func(c *Config) { c.Limits.MaxRequestBytes = 46 << 20 }},
		{"", func(c *Config) { c.Limits.MaxRequestBytes = 32 << 20 }},
		{"--max-txn-ops", func(c *Config) { c.Limits.MaxTxnOps = 0 }},
		{"--max-txn-ops", func(c *Config) { c.Limits.MaxTxnOps = 1 << 15 }},
		{"", func(c *Config) { c.Limits.QuotaBackendBytes = -1 }},
		{"--max-concurrent-streams", func(c *Config) { c.GRPC.MaxConcurrentStreams = 0 }},
		{"--grpc-keepalive-min-time", func(c *Config) { c.GRPC.KeepAliveMinTime = -1 }},
		{"--grpc-keepalive-interval", func(c *Config) { c.GRPC.KeepAliveInterval = -1 }},
		{"--grpc-keepalive-timeout", func(c *Config) { c.GRPC.KeepAliveTimeout = -1 }},
		{"", func(c *Config) { c.GRPC.KeepAliveInterval, c.GRPC.KeepAliveTimeout = 0, 0 }},
		{"--lease-min-ttl", func(c *Config) { c.Lease.MinTTL = 0 }},
		{"--lease-max-cache-ttl", func(c *Config) { c.Lease.MaxCacheTTL = 99 * time.Millisecond }},
		{"at most 10m", func(c *Config) { c.Lease.MaxCacheTTL = time.Hour }},
		{"--lease-checkpoint-interval", func(c *Config) { c.Lease.CheckpointInterval = -1 }},
		{"--lease-checkpoint-interval", func(c *Config) { c.Lease.CheckpointInterval = 0 }},
		{"--lease-untended", func(c *Config) { c.Lease.Untended = 0 }},
		{"--lease-spread-rate", func(c *Config) { c.Lease.SpreadRate = 0 }},
		{"", func(c *Config) { c.Lease.CheckpointInterval = 100 * time.Millisecond }},
		{"--lease-max-keys", func(c *Config) { c.Lease.MaxKeys = 0 }},
		{"--watch-progress-notify-interval", func(c *Config) { c.WatchProgressInterval = 0 }},
		{"--ui", func(c *Config) { c.HTTP.UI = "" }},
		{"--ui", func(c *Config) { c.HTTP.UI = "readonly" }},
		{"", func(c *Config) { c.HTTP.UI = "read-only" }},
		{
			`--cors "*": write each allowed origin as browsers send it, such ` +
				"as https://admin.example.com or http://localhost:3000; wildcards are not allowed",
			func(c *Config) { c.HTTP.CORS = []string{"*"} },
		},
		{`--cors "*"`, func(c *Config) { c.HTTP.CORS = []string{"https://a", "*"} }},
		{`--cors "https://*.a"`, func(c *Config) { c.HTTP.CORS = []string{"https://*.a"} }},
		{`--cors "null"`, func(c *Config) { c.HTTP.CORS = []string{"null"} }},
		{`--cors "https://a/"`, func(c *Config) { c.HTTP.CORS = []string{"https://a/"} }},
		{`--cors "https://A"`, func(c *Config) { c.HTTP.CORS = []string{"https://A"} }},
		{`--cors "https://a:443"`, func(c *Config) { c.HTTP.CORS = []string{"https://a:443"} }},
		{`--cors "a.example"`, func(c *Config) { c.HTTP.CORS = []string{"a.example"} }},
		{"", func(c *Config) { c.HTTP.CORS = []string{"https://a.example", "http://[::1]:3000"} }},
		{"--auto-compaction-mode", func(c *Config) { c.Compaction.Mode = "" }},
		{"--auto-compaction-retention", func(c *Config) { c.Compaction.Period = -1 }},
		{"--auto-compaction-retention", func(c *Config) { c.Compaction.Revisions = -1 }},
	} {
		conf := DefaultConfig()
		c.change(&conf)
		err := conf.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("refused: %v", err)
		case c.want != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

// TestValidateNamesAll checks that Validate reports all invalid settings, not just the first.
func TestValidateNamesAll(t *testing.T) {
	c := DefaultConfig()
	c.Name, c.DataDir, c.URLs.ListenClient = "", "", nil
	c.Raft.SnapshotCount, c.Raft.CompareEvery = 0, -1
	c.Limits.MaxTxnOps, c.Limits.MaxRequestBytes = 0, 0
	c.Access.BcryptCost, c.Access.MaxFailedLogins, c.Compaction.Mode = 0, -1, ""
	err := c.Validate()
	for _, want := range []string{
		"--name", "--data-dir", "--listen-client-urls", "--snapshot-count", "--corrupt-check-time",
		"--max-txn-ops", "--max-request-bytes", "--bcrypt-cost", "--max-failed-logins",
		"--auto-compaction-mode",
	} {
		if !errors.Is(err, ErrConfig) || strings.Count(err.Error(), want) != 1 {
			t.Errorf("it does not name %s once: %v", want, err)
		}
	}
}

// TestCheckBootstrap checks that a first start fails if the member is not in its own initial
// cluster. An alias of its host is accepted.
func TestCheckBootstrap(t *testing.T) {
	at := func(s string) []url.URL { return []url.URL{{Scheme: "http", Host: s}} }
	for _, c := range []struct {
		initial   map[string][]url.URL
		advertise []url.URL
		want      string
	}{
		{nil, at("localhost:2380"), ""},
		{map[string][]url.URL{"default": at("localhost:1")}, at("localhost:1"), ""},
		{map[string][]url.URL{"default": at("127.0.0.1:1"), "b": at("b:1")}, at("localhost:1"), ""},
		{map[string][]url.URL{"b": at("b:1")}, at("a:1"), "add default=http://a:1"},
		{map[string][]url.URL{"default": at("a:1")}, at("a:2"), "make them the same"},
		{
			map[string][]url.URL{"default": at("a:1"), "b": at("b:1"), "c": at("a:1")},
			at("a:1"),
			"members c and default have the same URL http://a:1",
		},
	} {
		conf := DefaultConfig()
		conf.Cluster.Initial, conf.URLs.AdvertisePeer = c.initial, c.advertise
		err := conf.CheckBootstrap()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v: %v", c.initial, c.advertise, err)
		}
	}
}

// TestClientShare checks that a member reserves file descriptors for itself and for other members,
// and reports an error if too few are available.
func TestClientShare(t *testing.T) {
	for files, want := range map[uint64]int{
		250: 50, 300: 100, 1024: 633, 1 << 20: 1<<20 - 450, math.MaxUint64: math.MaxInt32 - 450,
	} {
		if got, err := clientShare(files); err != nil || got != want {
			t.Errorf("of %d files: %d for clients, %v, want %d", files, got, err, want)
		}
	}
	if _, err := clientShare(249); err == nil || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("too few files: %v", err)
	}
}
