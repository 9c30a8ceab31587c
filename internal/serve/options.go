package serve

import (
	"math"
	"net/url"
	"strconv"
)

func (f *flags) addMember() {
	c, fs := &f.cfg, f.fs
	fs.StringVar(&c.Name, "name", c.Name, "Human-readable name of the member")
	c.DataDir = ""
	fs.StringVar(&c.DataDir, "data-dir", "",
		"Directory for the log and the snapshots (default NAME.leasehold)")
	fs.Var(urls{&c.URLs.ListenClient}, "listen-client-urls",
		"URLs to listen on for clients (gRPC and HTTP)")
	fs.Var(urls{&c.URLs.ListenClientHTTP}, "listen-client-http-urls",
		"URLs to listen on for clients that only use HTTP")
	fs.Var(urls{&c.URLs.ListenPeer}, "listen-peer-urls", "URLs to listen on for other members")
	fs.Uint64Var(&c.Raft.SnapshotCount, "snapshot-count", c.Raft.SnapshotCount,
		"Number of entries applied between snapshots")
	fs.Uint64Var(&c.Raft.SnapshotCatchUpEntries, "snapshot-catchup-entries",
		c.Raft.SnapshotCatchUpEntries,
		"Number of entries before a snapshot to keep for members that lag behind")
	fs.Var(millis{&c.Raft.Heartbeat}, "heartbeat-interval",
		"Interval of the leader's heartbeats in milliseconds. If this or --election-timeout is "+
			"set, only the election timeout detects an unresponsive leader, as in etcd")
	fs.Var(millis{&c.Raft.ElectionTimeout}, "election-timeout",
		"Time without a leader after which a follower starts an election, in milliseconds. If it "+
			"is not set, an unresponsive leader is replaced sooner, usually within 0.3 s")
	fs.BoolVar(&c.Raft.PreVote, "pre-vote", c.Raft.PreVote,
		"Poll the other members before an election, so that a member that was cut off does not disrupt "+
			"the cluster")
	fs.DurationVar(&c.Raft.CompareEvery, "corrupt-check-time", c.Raft.CompareEvery,
		"Interval at which members compare hashes of their states. A member that differs from "+
			"the majority stops, and the CORRUPT alarm names it (0: never)")
}

func (f *flags) addCluster() {
	c, fs := &f.cfg, f.fs
	fs.Var(urls{&c.URLs.AdvertiseClient}, "advertise-client-urls",
		"URLs at which clients reach this member (default: the ones it listens on)")
	fs.Var(urls{&c.URLs.AdvertisePeer}, "initial-advertise-peer-urls",
		"URLs at which other members reach this one (default: the ones it listens on)")
	fs.Var(members{&c.Cluster.Initial}, "initial-cluster",
		"Members of a new cluster: NAME=URL,NAME=URL,... (default: this member alone)")
	f.state = string(c.Cluster.State)
	fs.StringVar(&f.state, "initial-cluster-state", f.state,
		"'new' to create a cluster, 'existing' to join one; ignored on later starts")
	fs.StringVar(&c.Cluster.Token, "initial-cluster-token", c.Cluster.Token,
		"Token that distinguishes clusters with the same URLs")
	fs.BoolVar(&c.Cluster.StrictReconfigCheck, "strict-reconfig-check",
		c.Cluster.StrictReconfigCheck, "Reject membership changes that would lose quorum")
	fs.DurationVar(&c.Cluster.FoundersWait, "initial-founders-wait", c.Cluster.FoundersWait,
		"How long to wait for unreachable members of --initial-cluster before a majority of "+
			"them starts without the rest (0: forever)")
	fs.IntVar(&c.Cluster.MaxLearners, "max-learners", c.Cluster.MaxLearners,
		"Maximum number of learners at a time (0: unlimited)")
	fs.Var(endpoints{list{&f.join.endpoints}}, "join",
		"Client addresses HOST:PORT,... of members of a running cluster to join. The member adds "+
			"itself, catches up and becomes a voter. If its own addresses are not set, it chooses free "+
			"ones. Ignored once the data directory belongs to a cluster")
	fs.BoolVar(&f.join.replace, "replace", false,
		"With --join: replace a member with the same peer URLs, whose data is lost")
	l := &f.join.login
	fs.StringVar(&l.user, "join-user", "", "With --join, if access control is enabled: a user "+
		"with the root role. A client certificate of such a user works too")
	fs.StringVar(&l.passwordFile, "join-password-file", "",
		"File with the password of --join-user, needed only until "+
			"the member has joined")
	fs.StringVar(&l.tokenFile, "join-token-file", "",
		"File with a token, instead of --join-user")
}

func (f *flags) addLease() {
	l, fs := &f.cfg.Lease, f.fs
	fs.DurationVar(&l.MinTTL, "lease-min-ttl", l.MinTTL,
		"Shortest TTL that leasehold.v1 grants; the etcd API grants whole seconds")
	fs.DurationVar(&l.MaxCacheTTL, "lease-max-cache-ttl", l.MaxCacheTTL,
		"Longest TTL of a cache's lease, which is how long a write may wait for a dead cache "+
			"(at most 10m)")
	fs.DurationVar(&l.CheckpointInterval, "lease-checkpoint-interval", l.CheckpointInterval,
		"How long a lease can be silent before its remaining time is checkpointed, and the interval "+
			"between checkpoints (at least 100ms; a lease with a TTL of less than 2.5 times that "+
			"is checkpointed sooner)")
	fs.DurationVar(&l.Untended, "lease-untended", l.Untended,
		"Like --lease-checkpoint-interval, but for a lease that no stream is renewing: after its "+
			"grant, after its stream has ended, and after an election")
	fs.IntVar(&l.SpreadRate, "lease-spread-rate", l.SpreadRate,
		"Maximum number of leases that become due per second after an election; the others expire "+
			"later")
	fs.IntVar(&l.MaxKeys, "lease-max-keys", l.MaxKeys,
		"Maximum number of keys attached to a lease; they are all deleted in one step when the "+
			"lease ends")
}

func (f *flags) addLimits() {
	c, fs := &f.cfg, f.fs
	fs.Int64Var(&c.Limits.MaxRequestBytes, "max-request-bytes", c.Limits.MaxRequestBytes,
		"Maximum size of a request, in bytes")
	fs.IntVar(&c.Limits.MaxTxnOps, "max-txn-ops", c.Limits.MaxTxnOps,
		"Maximum number of operations in a branch of a transaction")
	fs.Int64Var(&c.Limits.QuotaBackendBytes, "quota-backend-bytes", 0,
		"Size of the state in bytes at which writes are rejected (0: 2 GiB; negative: "+
			"unlimited)")
	f.mode = string(c.Compaction.Mode)
	fs.StringVar(&f.mode, "auto-compaction-mode", f.mode,
		"'periodic' to keep history by age, 'revision' to keep a number of revisions")
	fs.StringVar(&f.retention, "auto-compaction-retention", f.retention,
		"History to keep: hours, a duration such as 90m, or revisions (0: all; default: an "+
			"hour but at least 10,000 revisions, or 10,000 revisions with mode 'revision')")
	fs.Var(streams{&c.GRPC.MaxConcurrentStreams}, "max-concurrent-streams",
		"Maximum number of streams per connection, up to "+
			strconv.FormatUint(math.MaxUint32, 10))
	fs.DurationVar(&c.GRPC.KeepAliveMinTime, "grpc-keepalive-min-time", c.GRPC.KeepAliveMinTime,
		"Minimum interval between a client's pings")
	fs.DurationVar(&c.GRPC.KeepAliveInterval, "grpc-keepalive-interval", c.GRPC.KeepAliveInterval,
		"Idle time after which a connection is pinged (0: never)")
	fs.DurationVar(&c.GRPC.KeepAliveTimeout, "grpc-keepalive-timeout", c.GRPC.KeepAliveTimeout,
		"Time without a response to a ping after which a connection is closed")
	fs.DurationVar(&c.WatchProgressInterval, "watch-progress-notify-interval",
		c.WatchProgressInterval,
		"Interval of progress notifications for idle watches that requested them")
}

func (f *flags) addBackup() {
	b, fs := &f.cfg.Backup, f.fs
	fs.StringVar(&b.To, "backup-to", "",
		"Where the leader keeps backups: an existing directory, or "+
			"s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=NAME. Use the same value on all "+
			"members (default: no backups)")
	fs.StringVar(&b.Schedule, "backup-schedule", b.Schedule, "When to make a full backup, "+
		"in cron syntax: '0 3 * * *', @hourly, '@every 6h'. Hours are in UTC, or in a zone: "+
		"'CRON_TZ=Europe/Paris 0 3 * * *'")
	fs.IntVar(&b.Keep, "backup-keep", b.Keep,
		"Number of full backups to keep, along with the log since the oldest of them")
	fs.DurationVar(&b.Interval, "backup-log-interval", b.Interval,
		"Interval at which the log is copied; if all members are lost, so are the writes since the "+
			"last copy")
	fs.StringVar(&b.CredentialsFile, "backup-credentials-file", "",
		"File with the credentials for a bucket, like ~/.aws/credentials, read for each request "+
			"(default: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the AWS role "+
			"of the machine)")
}

func (f *flags) addClientSecurity() {
	t, fs := &f.cfg.ClientTLS, f.fs
	fs.StringVar(&t.CertFile, "cert-file", "", "Certificate for clients (PEM)")
	fs.StringVar(&t.KeyFile, "key-file", "", "Private key of --cert-file (PEM)")
	fs.StringVar(&t.TrustedCAFile, "trusted-ca-file", "",
		"CA certificates for verifying client certificates (PEM)")
	fs.BoolVar(&t.ClientCertAuth, "client-cert-auth", false, "Require a certificate from clients")
	fs.StringVar(&t.CRLFile, "client-crl-file", "", "List of revoked client certificates")
	fs.Var(list{&t.AllowedCNs}, "client-cert-allowed-cn",
		"Allowed common names in client certificates")
	fs.Var(list{&t.AllowedHostnames}, "client-cert-allowed-hostname",
		"Allowed host names in client certificates")
	fs.BoolVar(&t.Auto, "auto-tls", false,
		"Generate a self-signed certificate for clients, and keep it in the data directory")
	c := &f.cfg.Access
	fs.StringVar(&c.Token, "auth-token", c.Token,
		"Kind of login token: 'simple', or signed tokens "+
			"'jwt,pub-key=FILE,priv-key=FILE,sign-method=METHOD,ttl=10m' with a METHOD such as RS256, "+
			"ES256, EdDSA or HS256. Without priv-key this member only verifies tokens")
	fs.Var(seconds{&c.TokenTTL}, "auth-token-ttl",
		"Time in seconds for which a simple token is valid after its last use")
	fs.StringVar(&c.BindingsFile, "auth-config", "",
		"YAML file that binds certificate SANs, and tokens from other issuers (OpenID "+
			"Connect), to users or roles. It is reloaded when it changes, and on SIGHUP")
	fs.IntVar(&c.BcryptCost, "bcrypt-cost", c.BcryptCost,
		"Cost of hashing a new password, 4 to 31; each step doubles it")
	fs.IntVar(&c.MinPassword, "min-password-length", c.MinPassword,
		"Minimum length of a new password, in characters (0: any, as in etcd)")
	fs.IntVar(&c.MaxFailedLogins, "max-failed-logins", c.MaxFailedLogins,
		"Number of consecutive failed logins from an address after which only one attempt every "+
			"five seconds is accepted (0: unlimited)")
	fs.IntVar(&c.MetricsPrincipals, "metrics-principals", c.MetricsPrincipals,
		"Number of principals listed in per-principal metrics, largest first, up to 1000. "+
			"Anyone who can read /metrics can read the names")
	fs.BoolVar(&c.Insecure, "insecure", false,
		"Do not warn that other machines can reach the client "+
			"URLs without TLS or without access control")
	fs.StringVar(&t.ClientCertFile, "client-cert-file", "",
		"Certificate that this member presents when it joins a cluster (PEM, default --cert-file)")
	fs.StringVar(&t.ClientKeyFile, "client-key-file", "", "Private key of --client-cert-file (PEM)")
	fs.Var(list{&t.CipherSuites}, "cipher-suites", "TLS 1.2 cipher suites (default: Go's)")
	t.MinVersion = "TLS1.2"
	fs.StringVar(&t.MinVersion, "tls-min-version", t.MinVersion, "'TLS1.2' or 'TLS1.3'")
	fs.StringVar(&t.MaxVersion, "tls-max-version", "",
		"'TLS1.2' or 'TLS1.3' (default: the newest)")
	fs.IntVar(&t.SelfSignedYears, "self-signed-cert-validity", 1,
		"Validity of self-signed certificates, in years")
}

func (f *flags) addPeerSecurity() {
	t, fs := &f.cfg.PeerTLS, f.fs
	fs.StringVar(&t.CertFile, "peer-cert-file", "", "Certificate for other members (PEM)")
	fs.StringVar(&t.KeyFile, "peer-key-file", "", "Private key of --peer-cert-file (PEM)")
	fs.StringVar(&t.ClientCertFile, "peer-client-cert-file", "",
		"Certificate for connections to other members (PEM, default --peer-cert-file)")
	fs.StringVar(&t.ClientKeyFile, "peer-client-key-file", "", "Private key of "+
		"--peer-client-cert-file (PEM)")
	fs.StringVar(&t.TrustedCAFile, "peer-trusted-ca-file", "",
		"CA certificates for verifying members' certificates (PEM)")
	fs.BoolVar(&t.ClientCertAuth, "peer-client-cert-auth", false,
		"Require a certificate from other members")
	fs.StringVar(&t.CRLFile, "peer-crl-file", "", "List of revoked member certificates")
	fs.Var(list{&t.AllowedCNs}, "peer-cert-allowed-cn",
		"Allowed common names in members' certificates")
	fs.Var(list{&t.AllowedHostnames}, "peer-cert-allowed-hostname",
		"Allowed host names in members' certificates")
	fs.StringVar(&f.cfg.PeerTokenFile, "peer-token-file", "",
		"File with a random secret of at least 32 bytes, the same for all members. Members "+
			"without it are rejected (head -c 32 /dev/urandom | base64)")
	fs.BoolVar(&t.Auto, "peer-auto-tls", false,
		"Generate a self-signed certificate for members, and keep it in the data directory")
}

func (f *flags) addHTTP() {
	c, fs := &f.cfg, f.fs
	f.addMetrics(&c.URLs.ListenMetrics)
	h := &c.HTTP
	f.addGateway(&h.Gateway, &h.UI, &h.CORS, &h.HostWhitelist)
	fs.BoolVar(&h.Pprof, "enable-pprof", h.Pprof, "Serve profiles under /debug/pprof/")
}

// addMetrics adds the flag for the metrics port. Members and relays have this flag.
func (f *flags) addMetrics(at *[]url.URL) {
	f.fs.Var(urls{at}, "listen-metrics-urls",
		"URLs to serve /metrics and the health pages on, in addition to the client URLs")
}

// addGateway adds the flags for the gateway and the web page. Members and relays have these flags.
func (f *flags) addGateway(gateway *bool, ui *string, cors, hosts *[]string) {
	f.fs.BoolVar(gateway, "enable-grpc-gateway", *gateway, "Serve JSON under /v3/ and /v1/")
	f.fs.StringVar(ui, "ui", *ui, "The page under /ui/: 'on', 'read-only' or 'off'. Requires "+
		"--enable-grpc-gateway")
	f.fs.Var(list{cors}, "cors",
		"Other origins (https://HOST[:PORT]) whose pages may call the JSON gateway (default: none)")
	f.fs.Var(list{hosts}, "host-whitelist",
		"Hosts allowed in the Host header of unencrypted HTTP requests ('*': all). By default, all "+
			"are allowed, except that a request to a loopback address must name an address, "+
			"localhost or a host of the client URLs")
}

func (f *flags) addLog() {
	fs := f.fs
	fs.StringVar(&f.log.level, "log-level", "info",
		"debug, info, warn or error (panic and fatal mean error)")
	fs.StringVar(&f.log.format, "log-format", "json", "json or console")
	f.log.outputs = []string{"default"}
	fs.Var(list{&f.log.outputs}, "log-outputs",
		"stderr, stdout, or files to append to ('default' means stderr)")
}

func (f *flags) addLogging() {
	f.addLog()
	f.fs.DurationVar(&f.cfg.GRPC.WarnAfter, "warning-unary-request-duration", f.cfg.GRPC.WarnAfter,
		"Log calls, and requests on leasehold.v1 streams, that take longer than this, and where "+
			"the time was spent; at most a few every ten seconds (0: never)")
	a, fs := &f.cfg.Access.Audit, f.fs
	fs.StringVar(&a.File, "audit-log", "",
		"File, stdout or stderr to record who did what (default: none)")
	fs.StringVar(&a.Level, "audit-log-level", a.Level,
		"'changes' to users, roles, members, settings "+
			"and leases; 'writes', which adds writes of keys; or 'reads', which adds reads. "+
			"Denied calls are always recorded")
	fs.StringVar(&a.WhenFull, "audit-log-when-full", a.WhenFull, "What to do if a record cannot "+
		"be written: 'drop' it and count it, or 'stop' the call")
	fs.IntVar(&a.MaxMegabytes, "audit-log-max-megabytes", a.MaxMegabytes,
		"Size at which the file is rotated")
	fs.IntVar(&a.MaxFiles, "audit-log-max-files", a.MaxFiles,
		"Number of old files to keep (0: all)")
}

func (f *flags) addOther() {
	fs := f.fs
	fs.StringVar(&f.configFile, "config-file", "",
		"YAML file of settings, named like the flags or as in etcd's file. Flags and variables "+
			"override it. SIGHUP reloads log-level and log-format")
	fs.BoolVar(&f.version, "version", false, "Print the version and exit")
}
