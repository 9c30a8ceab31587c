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
// modify it after [New]. It is only read, so several members may share it.
type Config struct {
	// Name is the member's human-readable name. Default "default".
	Name string
	// DataDir is the directory of the log and the snapshots; it is created if
	// need be. One process may use it at a time. Default "NAME.leasehold".
	DataDir string
	// URLs are the addresses that the member listens on and advertises.
	URLs URLs
	// Cluster is the cluster that the member belongs to. It matters only at the first start.
	Cluster Cluster
	// ClientTLS and PeerTLS are used by https and unixs URLs. Default: none.
	ClientTLS TLS
	PeerTLS   TLS
	// PeerTokenFile contains a long random secret shared by all members of the cluster. A member
	// accepts peer connections only from members that present it. Default: none.
	PeerTokenFile string
	// Access configures logins under access control, and whether access control is required.
	Access Access
	// Limits bounds the requests of clients.
	Limits Limits
	// GRPC configures the gRPC connections and calls.
	GRPC GRPC
	// Raft configures elections and snapshots.
	Raft Raft
	// Lease configures leases.
	Lease Lease
	// Compaction configures when old revisions are dropped. Default: after an hour, except the
	// newest 10,000.
	Compaction Compaction
	// Backup configures backups. Default: none.
	Backup Backup
	// WatchProgressInterval is how often an idle watch that requested progress notifications gets
	// one. Default 10 minutes.
	WatchProgressInterval time.Duration
	// HTTP configures the pages and the JSON gateway.
	HTTP HTTP
	// TracerProvider, if not nil, receives the spans of calls. It must not block.
	TracerProvider trace.TracerProvider
	// Logger receives the member's log. Default: no log. Its handler must not block: the member
	// waits for it.
	Logger *slog.Logger

	host *host.Host // a simulated machine, for tests: see [host.Use]
}

func init() {
	host.Use = func(config any, h *host.Host) { config.(*Config).host = h }
}

// URLs are the addresses that a member listens on and advertises. Lists from the command line are
// sorted and have no duplicates.
type URLs struct {
	// ListenClient is for gRPC and HTTP. Its schemes are http, https, unix and unixs, its hosts
	// IP addresses or localhost. Default http://localhost:2379.
	ListenClient []url.URL
	// ListenClientHTTP, if not empty, is for HTTP only. ListenClient still serves both. Default
	// empty.
	ListenClientHTTP []url.URL
	// AdvertiseClient is how clients reach this member. Default
	// http://localhost:2379.
	AdvertiseClient []url.URL
	// ListenPeer is for other members. Default http://localhost:2380.
	ListenPeer []url.URL
	// AdvertisePeer is how other members reach this one. Default
	// http://localhost:2380.
	AdvertisePeer []url.URL
	// ListenMetrics has additional URLs for /metrics and the health pages only. ListenClient always
	// serves those, too. Default empty.
	ListenMetrics []url.URL
}

// Cluster is the cluster that a member belongs to. It is used at the first start; later starts read
// it from DataDir.
type Cluster struct {
	// Initial maps the name of each member to its peer URLs. Default nil: only this member; see
	// [Config.InitialMembers].
	Initial map[string][]url.URL
	// Token goes into the cluster's ID, so that members of two clusters with the same URLs do not
	// mix. Default "etcd-cluster", as in etcd.
	Token string
	// State is "new" if the member is a founder of the cluster, or "existing" if it joins it. Default
	// "new".
	State string
	// FoundersWait is how long a founder waits for unreachable founders before it founds the
	// cluster with a majority. An absent founder may belong to a cluster whose data the others have
	// lost. 0 means forever. Default 30 s.
	FoundersWait time.Duration
	// StrictReconfigCheck refuses membership changes that would lose the quorum.
	// Default true.
	StrictReconfigCheck bool
	// MaxLearners is how many learners a cluster may have at a time; 0: any number. The leader's
	// value counts when a learner is added. Default 1.
	MaxLearners int
}

// TLS configures the member's certificates and which certificates it accepts. The zero value
// means no TLS.
type TLS struct {
	// CertFile and KeyFile are PEM files, read again at every handshake.
	CertFile string
	KeyFile  string
	// ClientCertFile and ClientKeyFile, if set, are used instead for connections to other members.
	// They are used only in PeerTLS.
	ClientCertFile string
	ClientKeyFile  string
	// TrustedCAFile is a PEM bundle, read again at every handshake. If it or ClientCertAuth is set,
	// a client must present a certificate that the bundle verifies. The default bundle is the
	// system's.
	TrustedCAFile  string
	ClientCertAuth bool
	// CRLFile has revocation lists, one in DER or any number in PEM. It is read again at every
	// handshake.
	CRLFile string
	// AllowedHostnames and AllowedCNs, if not empty, limit the certificates that are accepted.
	AllowedHostnames []string
	AllowedCNs       []string
	// Auto makes a self-signed certificate, kept in DataDir, if CertFile and KeyFile are empty.
	Auto bool
	// CipherSuites are names as in package crypto/tls. Default: Go's choice.
	CipherSuites []string
	// MinVersion and MaxVersion are "TLS1.2" or "TLS1.3". Defaults: TLS1.2, and
	// the newest.
	MinVersion string
	MaxVersion string
	// SelfSignedYears is the validity of a certificate made by Auto, in years. Default 1.
	SelfSignedYears int
}

// listen converts t for package listen.
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

// Limits bounds the requests of clients.
type Limits struct {
	// MaxRequestBytes is the largest request, in bytes. Default 1.5 MiB. Its upper bound depends
	// on the size of messages between members and on MaxTxnOps: see Validate.
	MaxRequestBytes int64
	// MaxTxnOps is how many operations a branch of a transaction may have.
	// Default 128.
	MaxTxnOps int
	// QuotaBackendBytes is how large the state may grow, in bytes, at least 32 KiB: requests that
	// would exceed it are refused. The smallest quota of all members counts. Negative: no limit.
	// Default 2 GiB.
	QuotaBackendBytes int64
	// MembersOfProcess is how many members share the process's limit of open files. Default 1.
	MembersOfProcess int
}

// GRPC configures the gRPC connections and calls.
type GRPC struct {
	// MaxConcurrentStreams is the limit for one connection. Default 16,384.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is how long a client must wait between pings; one that
	// pings more often is disconnected. Default 5 s.
	KeepAliveMinTime time.Duration
	// KeepAliveInterval is how long a connection may be silent before the server pings it. 0: no
	// pings. Default 2 h.
	KeepAliveInterval time.Duration
	// KeepAliveTimeout is how long a ping may stay unanswered before the
	// connection is closed. 0: gRPC's own. Default 20 s.
	KeepAliveTimeout time.Duration
	// WarnAfter is how long a call may take before a warning logs what it waited for. 0: no
	// warnings. Default 300 ms.
	WarnAfter time.Duration
}

// Compaction configures how much history is kept. 0 in the field for the mode keeps everything.
// Otherwise, history is also dropped when the quota is almost used up.
type Compaction struct {
	// Mode is "periodic" or "revision". Default "periodic".
	Mode string
	// Period is how long revisions are kept. Default an hour.
	Period time.Duration
	// Revisions is how many revisions are kept. In periodic mode it is a minimum, however old they
	// are. Default 10,000.
	Revisions int64
}

// Backup configures where and when backups are made. All members have the same settings; the
// leader makes the backups.
type Backup struct {
	// To is a directory (a path, or file:///path) or a bucket with the S3 protocol
	// (s3://bucket/prefix?endpoint=https://host:port&region=name). Default: no backups.
	To string
	// Schedule is when full backups are made, in cron syntax and UTC. Default @daily.
	Schedule string
	// Keep is how many full backups are kept, along with the log since the oldest. Default 7.
	Keep int
	// Interval is how often the log is copied. Default 500 ms.
	Interval time.Duration
	// CredentialsFile contains the credentials for a bucket, like ~/.aws/credentials. By default
	// they are taken from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or from the
	// machine's role.
	CredentialsFile string
}

// maxElectionTimeout is etcd's: with a longer one, a dead leader goes unnoticed for so long that a
// wrong unit is the likelier explanation.
const maxElectionTimeout = 50 * time.Second

// minCheckpointInterval is how long silent leases are collected for one entry in any case.
const (
	minCheckpointInterval  = 100 * time.Millisecond
	checkpointIntervalRule = "--lease-checkpoint-interval must be at least 100ms: silence is always " +
		"replicated, or leases of dead holders would live forever"
)

// longestCacheTTL is the limit that every member applies to grants, whatever its configuration.
const longestCacheTTL = time.Duration(fsm.MaxCacheTTL) * time.Millisecond

// DefaultConfig returns the configuration of a single member on this machine.
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

// InitialMembers returns Cluster.Initial or, if that is empty, this member with the URLs that it
// advertises to peers.
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

// Validate returns an error that lists every invalid setting on its own line, with a remedy. It
// does no I/O: [New] and Run find missing files and busy ports.
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

// A rule is broken if bad is true; the text is the remedy.
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
		rule{state != "new" && state != "existing", fmt.Sprintf("cluster state %q is not "+
			"one of new, existing; set --initial-cluster-state", state)},
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

// CheckBootstrap returns an error if this member cannot be started for the first time: it must be a
// member of the initial cluster. Validate does not check this, because a member with data ignores
// the initial cluster, which may be out of date.
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
			"mode %q is not one of periodic, revision; set --auto-compaction-mode", a.Mode)},
		rule{a.Period < 0 || a.Revisions < 0, "--auto-compaction-retention must not be negative"},
	)
}
