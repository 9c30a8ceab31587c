package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"leasehold.dev/internal/backup/keeper"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/member/identity"
)

// ErrConfig is wrapped by every error of [Config.Validate].
var ErrConfig = identity.ErrConfig

// Config is the configuration of a member. Start from [DefaultConfig] and change fields. Do not
// modify it after calling [New]. Members only read it, so several of them can share it.
type Config struct {
	// Name is the member's human-readable name. The default is "default".
	Name string
	// DataDir is the directory of the log and the snapshots. It is created if necessary. Only one
	// process can use it at a time. The default is "NAME.leasehold".
	DataDir string
	// URLs holds the addresses that the member listens on and those that it advertises.
	URLs URLs
	// Cluster is the cluster that the member belongs to. It is used only at the first start.
	Cluster Cluster
	// ClientTLS and PeerTLS apply to https and unixs URLs. By default, there are none.
	ClientTLS TLS
	PeerTLS   TLS
	// PeerTokenFile contains a long random secret shared by all members of the cluster. A member
	// accepts peer connections only from members that present it. By default, there is no secret.
	PeerTokenFile string
	// Access configures logins under access control, and whether access control is required.
	Access Access
	// Limits contains the limits on requests from clients.
	Limits Limits
	// GRPC configures gRPC connections and calls.
	GRPC GRPC
	// Raft configures elections and snapshots.
	Raft Raft
	// Lease configures leases.
	Lease Lease
	// Compaction configures when old revisions are dropped. By default, revisions are dropped after
	// an hour, except for the newest 10,000.
	Compaction Compaction
	// Backup configures backups. By default, there are none.
	Backup Backup
	// WatchProgressInterval is how often an idle watch gets progress notifications, if it has
	// requested them. The default is 10 minutes.
	WatchProgressInterval time.Duration
	// HTTP configures the web pages and the JSON gateway.
	HTTP HTTP
	// TracerProvider, if not nil, receives the spans of calls. It must not block.
	TracerProvider trace.TracerProvider
	// Logger receives the member's log. By default, nothing is logged. Its handler must not block,
	// because the member waits for it.
	Logger *slog.Logger

	host *host.Host // a simulated machine, for tests: see [host.Use]
}

func init() {
	host.Use = func(config any, h *host.Host) { config.(*Config).host = h }
}

// URLs holds the addresses that a member listens on and those that it advertises. Lists from the
// command line are sorted and have no duplicates.
type URLs struct {
	// ListenClient is for gRPC and HTTP. Its schemes can be http, https, unix and unixs. Its hosts
	// must be IP addresses or localhost. The default is http://localhost:2379.
	ListenClient []url.URL
	// ListenClientHTTP, if not empty, is for HTTP only. ListenClient still serves both protocols.
	// By default, it is empty.
	ListenClientHTTP []url.URL
	// AdvertiseClient is how clients reach this member. The default is http://localhost:2379.
	AdvertiseClient []url.URL
	// ListenPeer is for other members. The default is http://localhost:2380.
	ListenPeer []url.URL
	// AdvertisePeer is how other members reach this one. The default is http://localhost:2380.
	AdvertisePeer []url.URL
	// ListenMetrics contains additional URLs that serve only /metrics and the health pages.
	// ListenClient always serves these pages as well. By default, it is empty.
	ListenMetrics []url.URL
}

// Cluster is the cluster that a member belongs to. It is used at the first start. Later starts read
// it from DataDir.
type Cluster struct {
	// Initial maps the name of each member to its peer URLs. If it is nil, which is the default,
	// this member is the only one. See [Config.InitialMembers].
	Initial map[string][]url.URL
	// Token is an input to the cluster's ID. It distinguishes the members of two clusters that have
	// the same URLs. As in etcd, the default is "etcd-cluster".
	Token string
	// State is "new" if the member is a founder of the cluster, or "existing" if it joins the
	// cluster. The default is "new".
	State string
	// FoundersWait is how long a founder waits for unreachable founders before it founds the
	// cluster with a majority. Waiting is useful because an absent founder might belong to a
	// cluster whose data the others have lost. 0 means forever. The default is 30 s.
	FoundersWait time.Duration
	// StrictReconfigCheck rejects membership changes that would cost the cluster its quorum. The
	// default is true.
	StrictReconfigCheck bool
	// MaxLearners is the maximum number of learners in the cluster; 0 means no limit. When a
	// learner is added, the leader's value applies. The default is 1.
	MaxLearners int
}

// TLS configures the member's certificates and which certificates it accepts. The zero value means
// no TLS.
type TLS struct {
	// CertFile and KeyFile are PEM files, which are reread at each handshake.
	CertFile string
	KeyFile  string
	// ClientCertFile and ClientKeyFile, if set, are used instead for connections to other members.
	// They apply only to PeerTLS.
	ClientCertFile string
	ClientKeyFile  string
	// TrustedCAFile is a PEM bundle that is reread at each handshake. If it or ClientCertAuth is
	// set, clients must present a certificate that can be verified with the bundle. The default is
	// the system's bundle.
	TrustedCAFile  string
	ClientCertAuth bool
	// CRLFile contains one revocation list in DER, or any number of them in PEM. It is reread at
	// each handshake.
	CRLFile string
	// AllowedHostnames and AllowedCNs, if not empty, restrict which certificates are accepted.
	AllowedHostnames []string
	AllowedCNs       []string
	// Auto creates a self-signed certificate, which is kept in DataDir, if CertFile and KeyFile are
	// empty.
	Auto bool
	// CipherSuites contains names as in package crypto/tls. By default, Go chooses.
	CipherSuites []string
	// MinVersion and MaxVersion are "TLS1.2" or "TLS1.3". The default for MinVersion is TLS1.2, and
	// the default for MaxVersion is the newest version.
	MinVersion string
	MaxVersion string
	// SelfSignedYears is the validity in years of a certificate created by Auto. The default is 1.
	SelfSignedYears int
}

// listen converts t to the corresponding type in package listen.
func (t TLS) listen() listen.TLS {
	return listen.TLS{
		CertFile: t.CertFile, KeyFile: t.KeyFile,
		ClientCertFile: t.ClientCertFile, ClientKeyFile: t.ClientKeyFile,
		TrustedCAFile: t.TrustedCAFile, ClientCertAuth: t.ClientCertAuth, CRLFile: t.CRLFile,
		AllowedHostnames: t.AllowedHostnames, AllowedCNs: t.AllowedCNs,
		Auto: t.Auto, CipherSuites: t.CipherSuites,
		MinVersion: t.MinVersion, MaxVersion: t.MaxVersion, SelfSignedYears: t.SelfSignedYears,
	}
}

// Limits contains the limits on requests from clients.
type Limits struct {
	// MaxRequestBytes is the maximum size of a request in bytes. The default is 1.5 MiB. Its upper
	// bound depends on the size of messages between members and on MaxTxnOps: see Validate.
	MaxRequestBytes int64
	// MaxTxnOps is the maximum number of operations per branch of a transaction. The default is
	// 128.
	MaxTxnOps int
	// QuotaBackendBytes is the maximum size of the state in bytes, at least 32 KiB. Requests that
	// would exceed it are rejected. The smallest quota of all members applies. If negative, there
	// is no limit. The default is 2 GiB.
	QuotaBackendBytes int64
	// MembersOfProcess is the number of members that share the process's limit on open files. The
	// default is 1.
	MembersOfProcess int
}

// GRPC configures gRPC connections and calls.
type GRPC struct {
	// MaxConcurrentStreams is the limit per connection. The default is 16,384.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is how long a client must wait between pings. A client that pings more often
	// is disconnected. The default is 5 s.
	KeepAliveMinTime time.Duration
	// KeepAliveInterval is how long a connection can be idle before the server pings it. 0 means no
	// pings. The default is 2 h.
	KeepAliveInterval time.Duration
	// KeepAliveTimeout is how long the server waits for the response to a ping before it closes the
	// connection. 0 means gRPC's default. The default is 20 s.
	KeepAliveTimeout time.Duration
	// WarnAfter is how long a call can take before a warning is logged, which shows what the call
	// waited for. 0 means no warnings. The default is 300 ms.
	WarnAfter time.Duration
}

// Compaction configures how much history is kept. If the field for the mode is 0, all history is
// kept. Otherwise, history is also dropped when the quota is almost used up.
type Compaction struct {
	// Mode is "periodic" or "revision". The default is "periodic".
	Mode string
	// Period is how long revisions are kept. The default is one hour.
	Period time.Duration
	// Revisions is how many revisions are kept. In periodic mode, at least this many are kept, no
	// matter how old they are. The default is 10,000.
	Revisions int64
}

// Backup configures where and when backups are made. All members have the same settings. The leader
// makes the backups.
type Backup struct {
	// To is a directory (a path, or file:///path) or a bucket that uses the S3 protocol
	// (s3://bucket/prefix?endpoint=https://host:port&region=name). By default, no backups are made.
	To string
	// Schedule is when full backups are made, in cron syntax and UTC. The default is @daily.
	Schedule string
	// Keep is how many full backups are kept, together with the log since the oldest one. The
	// default is 7.
	Keep int
	// Interval is how often the log is copied. The default is 500 ms.
	Interval time.Duration
	// CredentialsFile contains the credentials for a bucket in the format of ~/.aws/credentials. By
	// default, they come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or from
	// the machine's role.
	CredentialsFile string
}

// maxElectionTimeout is the same as in etcd. A longer timeout would leave a dead leader undetected
// for so long that the setting was probably given in the wrong unit.
const maxElectionTimeout = 50 * time.Second

// minCheckpointInterval is the minimum of Lease.CheckpointInterval. Silent leases are collected for
// that long in any case, so that they share one entry.
const (
	minCheckpointInterval  = 100 * time.Millisecond
	checkpointIntervalRule = "--lease-checkpoint-interval must be at least 100ms: silence is always " +
		"checkpointed, because otherwise leases of dead holders might never expire"
)

// longestCacheTTL is the limit that each member applies to grants, whatever its configuration.
const longestCacheTTL = time.Duration(fsm.MaxCacheTTL) * time.Millisecond

// DefaultConfig returns a configuration for a single member on this machine.
func DefaultConfig() Config {
	client := []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	peer := []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	return Config{
		Name:    "default",
		DataDir: "default.leasehold",
		URLs: URLs{
			ListenClient: client, AdvertiseClient: slices.Clone(client),
			ListenPeer: peer, AdvertisePeer: slices.Clone(peer),
		},
		Cluster: Cluster{
			Token: "etcd-cluster", State: "new", StrictReconfigCheck: true, MaxLearners: 1,
			FoundersWait: 30 * time.Second,
		},
		Limits: Limits{
			MaxRequestBytes:   3 << 19,
			MaxTxnOps:         128,
			QuotaBackendBytes: 2 << 30,
			MembersOfProcess:  1,
		},
		Access: defaultAccess(),
		GRPC: GRPC{
			MaxConcurrentStreams: 1 << 14,
			KeepAliveMinTime:     5 * time.Second,
			KeepAliveInterval:    2 * time.Hour,
			KeepAliveTimeout:     20 * time.Second,
			WarnAfter:            300 * time.Millisecond,
		},
		Raft: Raft{
			Heartbeat:              100 * time.Millisecond,
			ElectionTimeout:        time.Second,
			Adaptive:               true,
			SnapshotCount:          10_000,
			SnapshotCatchUpEntries: 5_000,
			PreVote:                true,
			CompareEvery:           time.Hour,
		},
		Lease: Lease{
			MinTTL:             100 * time.Millisecond,
			MaxCacheTTL:        5 * time.Second,
			CheckpointInterval: time.Minute,
			Untended:           250 * time.Millisecond,
			SpreadRate:         100_000,
			MaxKeys:            10_000,
		},
		Compaction:            Compaction{Mode: "periodic", Period: time.Hour, Revisions: 10_000},
		Backup:                Backup(keeper.DefaultSettings()),
		WatchProgressInterval: 10 * time.Minute,
		HTTP:                  defaultHTTP(),
		Logger:                slog.New(slog.DiscardHandler),
	}
}

// InitialMembers returns Cluster.Initial. If that is empty, it returns this member with the URLs
// that it advertises to peers.
func (c Config) InitialMembers() map[string][]url.URL {
	if len(c.Cluster.Initial) > 0 {
		return c.Cluster.Initial
	}
	return map[string][]url.URL{c.Name: c.URLs.AdvertisePeer}
}

// ClientAutoTLSDir is the directory of the self-signed certificate for clients.
func (c Config) ClientAutoTLSDir() string { return filepath.Join(c.DataDir, "fixtures", "client") }

// PeerAutoTLSDir is the directory of the self-signed certificate for peers.
func (c Config) PeerAutoTLSDir() string { return filepath.Join(c.DataDir, "fixtures", "peer") }

// Validate returns an error that lists each invalid setting on its own line, with a remedy. It does
// no I/O. Missing files and busy ports are detected by [New] and Run.
func (c Config) Validate() error {
	var errs []error
	for _, check := range []func() error{
		c.checkNames, c.checkURLs, c.checkTLS, c.checkNumbers, c.Limits.check, c.checkCompaction,
		c.Access.check, c.HTTP.check, keeper.Settings(c.Backup).Check,
	} {
		errs = append(errs, check())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// A rule is broken if bad is true. The text is the remedy.
type rule struct {
	bad  bool
	text string
}

// broken joins the texts of all broken rules into one error.
func broken(rules ...rule) error {
	var errs []error
	for _, r := range rules {
		if r.bad {
			errs = append(errs, errors.New(r.text))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkNames() error {
	state := c.Cluster.State
	return broken(
		rule{c.Name == "", "the name is empty; set --name"},
		rule{strings.ContainsAny(c.Name, ",="), fmt.Sprintf("name %q contains ',' or '=', which separate "+
			"members in --initial-cluster; choose another --name", c.Name)},
		rule{c.DataDir == "", "the data directory is empty; set --data-dir"},
		rule{state != "new" && state != "existing", fmt.Sprintf("cluster state %q is "+
			"invalid; set --initial-cluster-state to new or existing", state)},
	)
}

func (c Config) checkURLs() error {
	errs := []error{broken(
		rule{
			len(c.URLs.ListenClient) == 0,
			"no client URL to listen on; set --listen-client-urls",
		},
		rule{
			len(c.URLs.AdvertiseClient) == 0,
			"no client URL to advertise; set --advertise-client-urls",
		},
		rule{
			len(c.URLs.AdvertisePeer) == 0,
			"no peer URL to advertise; set --initial-advertise-peer-urls",
		},
	)}
	for _, l := range []struct {
		flag  string
		urls  []url.URL
		check func(url.URL) error
	}{
		{"--listen-client-urls", c.URLs.ListenClient, listen.CheckBind},
		{"--listen-client-http-urls", c.URLs.ListenClientHTTP, listen.CheckBind},
		{"--listen-peer-urls", c.URLs.ListenPeer, listen.CheckBind},
		{"--listen-metrics-urls", c.URLs.ListenMetrics, listen.CheckBind},
		{"--advertise-client-urls", c.URLs.AdvertiseClient, listen.CheckAdvertise},
		{"--initial-advertise-peer-urls", c.URLs.AdvertisePeer, listen.CheckAdvertise},
	} {
		for _, u := range l.urls {
			if err := l.check(u); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", l.flag, err))
			}
		}
	}
	return errors.Join(errs...)
}

// CheckBootstrap returns an error if this member cannot be started for the first time. It must be a
// member of the initial cluster. Validate does not check this, because a member that has data
// ignores the initial cluster, which might be out of date.
func (c Config) CheckBootstrap() error { return c.identity().CheckBootstrap() }

func (c Config) checkNumbers() error {
	r := c.Raft
	return broken([]rule{
		{r.Heartbeat < time.Millisecond, "--heartbeat-interval must be at least 1 ms"},
		{r.ElectionTimeout < 5*r.Heartbeat, fmt.Sprintf("--election-timeout (%s) must be at least "+
			"five times --heartbeat-interval (%s)", r.ElectionTimeout, r.Heartbeat)},
		{r.ElectionTimeout > maxElectionTimeout, fmt.Sprintf("--election-timeout (%s) must be at "+
			"most %s; the unit of a bare number is milliseconds", r.ElectionTimeout, maxElectionTimeout)},
		{c.Cluster.FoundersWait < 0, "--initial-founders-wait must not be negative"},
		{c.Cluster.MaxLearners < 0, "--max-learners must not be negative"},
		{r.CompareEvery < 0, "--corrupt-check-time must not be negative"},
		{r.SnapshotCount == 0, "--snapshot-count must be at least 1"},
		{c.GRPC.MaxConcurrentStreams == 0, "--max-concurrent-streams must be at least 1"},
		{c.GRPC.KeepAliveMinTime < 0, "--grpc-keepalive-min-time must not be negative"},
		{c.GRPC.KeepAliveInterval < 0, "--grpc-keepalive-interval must not be negative"},
		{c.GRPC.KeepAliveTimeout < 0, "--grpc-keepalive-timeout must not be negative"},
		{c.GRPC.WarnAfter < 0, "--warning-unary-request-duration must not be negative"},
		{c.Lease.MinTTL < time.Millisecond, "--lease-min-ttl must be at least 1 ms"},
		{
			c.Lease.MaxCacheTTL < c.Lease.MinTTL || c.Lease.MaxCacheTTL > longestCacheTTL,
			"--lease-max-cache-ttl must be at least --lease-min-ttl, and at most 10m",
		},
		{c.Lease.CheckpointInterval < minCheckpointInterval, checkpointIntervalRule},
		{c.Lease.MaxKeys < 1, "--lease-max-keys must be at least 1"},
		{c.Lease.Untended < time.Millisecond, "--lease-untended must be at least 1 ms"},
		{c.Lease.SpreadRate < 1, "--lease-spread-rate must be at least 1"},
		{c.WatchProgressInterval <= 0, "--watch-progress-notify-interval must be above 0"},
	}...)
}

func (c Config) checkCompaction() error {
	a := c.Compaction
	return broken(
		rule{a.Mode != "periodic" && a.Mode != "revision", fmt.Sprintf("compaction "+
			"mode %q is invalid; set --auto-compaction-mode to periodic or revision", a.Mode)},
		rule{a.Period < 0 || a.Revisions < 0, "--auto-compaction-retention must not be negative"},
	)
}
