package serve

import (
	"math"
	"net/url"
	"strconv"
)

func (f *flags) addMember() {
	c, fs := &f.cfg, f.fs
	fs.StringVar(&c.Name, "name", c.Name, "The member's name, for people.")
	c.DataDir = ""
	fs.StringVar(&c.DataDir, "data-dir", "", "The directory of the log and the snapshots. "+
		"Default: NAME.leasehold.")
	fs.Var(urls{&c.URLs.ListenClient}, "listen-client-urls",
		"Where to listen for clients, gRPC and HTTP.")
	fs.Var(urls{&c.URLs.ListenClientHTTP}, "listen-client-http-urls",
		"Where to listen for clients that speak HTTP only.")
	fs.Var(urls{&c.URLs.ListenPeer}, "listen-peer-urls", "Where to listen for other members.")
	fs.Uint64Var(&c.Raft.SnapshotCount, "snapshot-count", c.Raft.SnapshotCount,
		"How many entries are applied between two snapshots.")
	fs.Uint64Var(&c.Raft.SnapshotCatchUpEntries, "snapshot-catchup-entries",
		c.Raft.SnapshotCatchUpEntries,
		"How many entries before a snapshot are kept for members that lag.")
	fs.Var(millis{&c.Raft.Heartbeat}, "heartbeat-interval",
		"How often a leader shows itself (in milliseconds). If this or the next is set, members that "+
			"hang are noticed by the next alone, as in etcd.")
	fs.Var(millis{&c.Raft.ElectionTimeout}, "election-timeout",
		"How long a follower waits for a leader (in milliseconds). If it is not set, a leader that "+
			"hangs or is cut off is noticed sooner, as soon as the network allows: mostly in 0.3 s.")
	fs.BoolVar(&c.Raft.PreVote, "pre-vote", c.Raft.PreVote,
		"Ask before an election, so that a member that was cut off disturbs nobody.")
	fs.DurationVar(&c.Raft.CompareEvery, "corrupt-check-time", c.Raft.CompareEvery,
		"How often the members compare hashes of their states; one that differs from the majority "+
			"stops, and the CORRUPT alarm names it. 0 for never.")
}

func (f *flags) addCluster() {
	c, fs := &f.cfg, f.fs
	fs.Var(urls{&c.URLs.AdvertiseClient}, "advertise-client-urls",
		"How clients reach this member. Default: what it listens on.")
	fs.Var(urls{&c.URLs.AdvertisePeer}, "initial-advertise-peer-urls",
		"How other members reach this one. Default: what it listens on.")
	fs.Var(members{&c.Cluster.Initial}, "initial-cluster",
		"The members of a new cluster: NAME=URL,NAME=URL,... Default: this member alone.")
	f.state = string(c.Cluster.State)
	fs.StringVar(&f.state, "initial-cluster-state", f.state,
		"'new' to found a cluster, 'existing' to join one. Later starts ignore it.")
	fs.StringVar(&c.Cluster.Token, "initial-cluster-token", c.Cluster.Token,
		"Keeps clusters apart that were given the same URLs.")
	fs.BoolVar(&c.Cluster.StrictReconfigCheck, "strict-reconfig-check",
		c.Cluster.StrictReconfigCheck, "Refuse membership changes that would lose the quorum.")
	fs.DurationVar(&c.Cluster.FoundersWait, "initial-founders-wait", c.Cluster.FoundersWait,
		"how long to wait for founders that cannot be reached before a majority of those in "+
			"--initial-cluster begins without them; 0: for ever")
	fs.IntVar(&c.Cluster.MaxLearners, "max-learners", c.Cluster.MaxLearners,
		"How many members may be learners at a time (0: any number).")
	fs.Var(endpoints{list{&f.join.endpoints}}, "join",
		"Join the running cluster that has members at these client addresses: HOST:PORT,... "+
			"The member adds itself, catches up and becomes a voter. Without any flag for an "+
			"address it chooses its own. Ignored once the data directory belongs to a cluster.")
	fs.BoolVar(&f.join.replace, "replace", false,
		"With --join: take the place of a member with the same peer URLs whose data are lost.")
	l := &f.join.login
	fs.StringVar(&l.user, "join-user", "", "With --join, of a cluster that has users: a user with "+
		"the role root, to add the member. A client certificate of one will do as well.")
	fs.StringVar(&l.passwordFile, "join-password-file", "", "The file with that user's password. It "+
		"may go when the member has joined.")
	fs.StringVar(&l.tokenFile, "join-token-file", "",
		"The file with a token, in the place of --join-user.")
}

func (f *flags) addLease() {
	l, fs := &f.cfg.Lease, f.fs
	fs.DurationVar(&l.MinTTL, "lease-min-ttl", l.MinTTL,
		"The shortest lifetime that leasehold.v1 grants. The etcd API grants whole seconds.")
	fs.DurationVar(&l.MaxCacheTTL, "lease-max-cache-ttl", l.MaxCacheTTL,
		"The longest lifetime of a cache's lease: for so long a write waits for a cache that is "+
			"dead. At most 10m.")
	fs.DurationVar(&l.CheckpointInterval, "lease-checkpoint-interval", l.CheckpointInterval,
		"How long a lease may go unrenewed, at most, before its remaining time is replicated, and "+
			"until that is done again; at least 100ms. Leases of less than 2.5 times that do it sooner.")
	fs.DurationVar(&l.Untended, "lease-untended", l.Untended,
		"The same for a lease that nobody tends: after its grant, after the stream that kept it "+
			"alive has ended, and after an election.")
	fs.IntVar(&l.SpreadRate, "lease-spread-rate", l.SpreadRate,
		"How many leases may newly end within one second after an election; the others end later.")
	fs.IntVar(&l.MaxKeys, "lease-max-keys", l.MaxKeys,
		"How many keys are attached to one lease, at most. They all go in one step when it ends.")
}

func (f *flags) addLimits() {
	c, fs := &f.cfg, f.fs
	fs.Int64Var(&c.Limits.MaxRequestBytes, "max-request-bytes", c.Limits.MaxRequestBytes,
		"The largest request, in bytes.")
	fs.IntVar(&c.Limits.MaxTxnOps, "max-txn-ops", c.Limits.MaxTxnOps,
		"How many operations a branch of a transaction may have.")
	fs.Int64Var(&c.Limits.QuotaBackendBytes, "quota-backend-bytes", 0,
		"How large the state may grow before writes are refused, in bytes. "+
			"0 is 2 GiB, a negative number is no limit.")
	f.mode = string(c.Compaction.Mode)
	fs.StringVar(&f.mode, "auto-compaction-mode", f.mode,
		"'periodic' to keep history by age, 'revision' to keep a number of revisions.")
	fs.StringVar(&f.retention, "auto-compaction-retention", f.retention,
		"How much history is kept: hours or a duration such as 90m, or revisions. 0: all. If it is "+
			"not given: an hour but at least 10,000 revisions, or with mode 'revision' these.")
	fs.Var(streams{&c.GRPC.MaxConcurrentStreams}, "max-concurrent-streams",
		"How many streams one connection may have, at most "+
			strconv.FormatUint(math.MaxUint32, 10)+".")
	fs.DurationVar(&c.GRPC.KeepAliveMinTime, "grpc-keepalive-min-time", c.GRPC.KeepAliveMinTime,
		"How long a client must wait between pings.")
	fs.DurationVar(&c.GRPC.KeepAliveInterval, "grpc-keepalive-interval", c.GRPC.KeepAliveInterval,
		"How long a connection may be silent before it is pinged (0: never).")
	fs.DurationVar(&c.GRPC.KeepAliveTimeout, "grpc-keepalive-timeout", c.GRPC.KeepAliveTimeout,
		"How long a ping may stay unanswered before the connection is closed.")
	fs.DurationVar(&c.WatchProgressInterval, "watch-progress-notify-interval",
		c.WatchProgressInterval, "How often a quiet watch that asked for it is told the revision.")
}

func (f *flags) addBackup() {
	b, fs := &f.cfg.Backup, f.fs
	fs.StringVar(&b.To, "backup-to", "",
		"Where the member that leads keeps backups: a directory that exists, or "+
			" s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=NAME. All members are told "+
			"the same. Default: no backups.")
	fs.StringVar(&b.Schedule, "backup-schedule", b.Schedule, "When a backup of the whole state is "+
		"made, as in cron: '0 3 * * *', @hourly, '@every 6h'. Hours are of UTC, or of a zone: "+
		"'CRON_TZ=Europe/Paris 0 3 * * *'.")
	fs.IntVar(&b.Keep, "backup-keep", b.Keep,
		"How many backups of the whole state are kept, with the log since the oldest.")
	fs.DurationVar(&b.Interval, "backup-log-interval", b.Interval,
		"How often the log is copied: what is younger can be lost with all members.")
	fs.StringVar(&b.CredentialsFile, "backup-credentials-file", "",
		"File with the credentials for a bucket, like ~/.aws/credentials; it is read for each "+
			"request. Default: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the "+
			"role of the machine in AWS.")
}

func (f *flags) addClientSecurity() {
	t, fs := &f.cfg.ClientTLS, f.fs
	fs.StringVar(&t.CertFile, "cert-file", "", "The certificate shown to clients (PEM).")
	fs.StringVar(&t.KeyFile, "key-file", "", "The certificate's key (PEM).")
	fs.StringVar(&t.TrustedCAFile, "trusted-ca-file", "",
		"Clients must show a certificate that one of these vouches for (PEM).")
	fs.BoolVar(&t.ClientCertAuth, "client-cert-auth", false, "Clients must show a certificate.")
	fs.StringVar(&t.CRLFile, "client-crl-file", "", "Client certificates that were revoked.")
	fs.Var(list{&t.AllowedCNs}, "client-cert-allowed-cn",
		"A client certificate must bear one of these common names.")
	fs.Var(list{&t.AllowedHostnames}, "client-cert-allowed-hostname",
		"A client certificate must be for one of these hosts.")
	fs.BoolVar(&t.Auto, "auto-tls", false,
		"Make a self-signed certificate for clients; it is kept in the data directory.")
	c := &f.cfg.Access
	fs.StringVar(&c.Token, "auth-token", c.Token,
		"What stands for a login once access control is enabled: 'simple', or signed tokens: "+
			"'jwt,pub-key=FILE,priv-key=FILE,sign-method=METHOD,ttl=10m', METHOD such as RS256, ES256, "+
			"EdDSA or HS256. Without priv-key this member only checks tokens.")
	fs.Var(seconds{&c.TokenTTL}, "auth-token-ttl",
		"How long a simple token counts after its last use (in seconds).")
	fs.StringVar(&c.BindingsFile, "auth-config", "",
		"A YAML file that binds SANs of certificates, and tokens of other issuers (OpenID Connect), "+
			"to users or roles. It is read again when it changes, and on SIGHUP.")
	fs.IntVar(&c.BcryptCost, "bcrypt-cost", c.BcryptCost,
		"How dear the hash of a new password is, 4 to 31: one more doubles it.")
	fs.IntVar(&c.MinPassword, "min-password-length", c.MinPassword,
		"The shortest new password, in characters. 0: any, as in etcd.")
	fs.IntVar(&c.MaxFailedLogins, "max-failed-logins", c.MaxFailedLogins,
		"How many logins may fail in a row from one address, before one in five seconds is looked at. "+
			"0: any number.")
	fs.IntVar(&c.MetricsPrincipals, "metrics-principals", c.MetricsPrincipals,
		"How many users and other principals each metric of what they have names, those that have most, "+
			"up to 1000. Everybody who reaches /metrics reads the names.")
	fs.BoolVar(&c.Insecure, "insecure", false, "Do not warn that other machines reach the client "+
		"URLs without TLS or without access control.")
	fs.StringVar(&t.ClientCertFile, "client-cert-file", "",
		"The certificate shown by this member to the one it joins (PEM). Default: --cert-file.")
	fs.StringVar(&t.ClientKeyFile, "client-key-file", "", "That certificate's key (PEM).")
	fs.Var(list{&t.CipherSuites}, "cipher-suites", "The cipher suites of TLS 1.2. Default: Go's.")
	t.MinVersion = "TLS1.2"
	fs.StringVar(&t.MinVersion, "tls-min-version", t.MinVersion, "'TLS1.2' or 'TLS1.3'.")
	fs.StringVar(&t.MaxVersion, "tls-max-version", "",
		"'TLS1.2' or 'TLS1.3'. Default: the newest.")
	fs.IntVar(&t.SelfSignedYears, "self-signed-cert-validity", 1,
		"The life of self-signed certificates, in years.")
}

func (f *flags) addPeerSecurity() {
	t, fs := &f.cfg.PeerTLS, f.fs
	fs.StringVar(&t.CertFile, "peer-cert-file", "", "The certificate shown to members (PEM).")
	fs.StringVar(&t.KeyFile, "peer-key-file", "", "The certificate's key (PEM).")
	fs.StringVar(&t.ClientCertFile, "peer-client-cert-file", "",
		"The certificate shown when this member dials another (PEM). Default: --peer-cert-file.")
	fs.StringVar(&t.ClientKeyFile, "peer-client-key-file", "", "That certificate's key (PEM).")
	fs.StringVar(&t.TrustedCAFile, "peer-trusted-ca-file", "",
		"Members must show a certificate that one of these vouches for (PEM).")
	fs.BoolVar(&t.ClientCertAuth, "peer-client-cert-auth", false,
		"Members must show a certificate.")
	fs.StringVar(&t.CRLFile, "peer-crl-file", "", "Member certificates that were revoked.")
	fs.Var(list{&t.AllowedCNs}, "peer-cert-allowed-cn",
		"A member's certificate must bear one of these common names.")
	fs.Var(list{&t.AllowedHostnames}, "peer-cert-allowed-hostname",
		"A member's certificate must be for one of these hosts.")
	fs.StringVar(&f.cfg.PeerTokenFile, "peer-token-file", "",
		"A file with a long random secret, at least 32 bytes, that all members have: members without\n"+
			"it are refused. (head -c 32 /dev/urandom | base64)")
	fs.BoolVar(&t.Auto, "peer-auto-tls", false,
		"Make a self-signed certificate for members; it is kept in the data directory.")
}

func (f *flags) addHTTP() {
	c, fs := &f.cfg, f.fs
	f.addMetrics(&c.URLs.ListenMetrics)
	h := &c.HTTP
	f.addGateway(&h.Gateway, &h.UI, &h.CORS, &h.HostWhitelist)
	fs.BoolVar(&h.Pprof, "enable-pprof", h.Pprof, "Serve profiles under /debug/pprof/.")
}

// addMetrics adds the flag of the port of metrics, which members and relays have.
func (f *flags) addMetrics(at *[]url.URL) {
	f.fs.Var(urls{at}, "listen-metrics-urls",
		"Where to serve /metrics and the health pages, besides the client URLs.")
}

// addGateway adds the flags of the gateway and the page, which members and relays have.
func (f *flags) addGateway(gateway *bool, ui *string, cors, hosts *[]string) {
	f.fs.BoolVar(gateway, "enable-grpc-gateway", *gateway, "Serve JSON under /v3/ and /v1/.")
	f.fs.StringVar(ui, "ui", *ui, "The page for people under /ui/: "+
		"'on'; 'read-only', which offers nothing that changes something; or 'off'. It needs "+
		"--enable-grpc-gateway.")
	f.fs.Var(list{cors}, "cors",
		"Other origins (https://HOST[:PORT]) whose pages may call the JSON gateway. Default: none.")
	f.fs.Var(list{hosts}, "host-whitelist",
		"Hosts that unencrypted HTTP requests may name ('*': all). Default: all, but requests to a "+
			"loopback address must name an address, localhost or a host of the client URLs.")
}

func (f *flags) addLog() {
	fs := f.fs
	fs.StringVar(&f.log.level, "log-level", "info",
		"debug, info, warn or error (panic and fatal are taken for error).")
	fs.StringVar(&f.log.format, "log-format", "json", "json or console.")
	f.log.outputs = []string{"default"}
	fs.Var(list{&f.log.outputs}, "log-outputs",
		"stderr, stdout, or files to append to. default is stderr.")
}

func (f *flags) addLogging() {
	f.addLog()
	f.fs.DurationVar(&f.cfg.GRPC.WarnAfter, "warning-unary-request-duration", f.cfg.GRPC.WarnAfter,
		"A call, or a request of a stream of leasehold.v1, that takes longer is logged with what it "+
			"waited for, a few in ten seconds. 0: none is.")
	a, fs := &f.cfg.Access.Audit, f.fs
	fs.StringVar(&a.File, "audit-log", "",
		"Where to record who did what: a file, stdout or stderr. Default: nowhere.")
	fs.StringVar(&a.Level, "audit-log-level", a.Level, "'changes' of users, roles, members, settings "+
		"and leases; 'writes': of keys as well; 'reads': all. What is denied is always recorded.")
	fs.StringVar(&a.WhenFull, "audit-log-when-full", a.WhenFull, "What becomes of a call whose "+
		"record cannot be written: 'drop' the record and count it, or 'stop' the call.")
	fs.IntVar(&a.MaxMegabytes, "audit-log-max-megabytes", a.MaxMegabytes,
		"The size at which the file is rotated.")
	fs.IntVar(&a.MaxFiles, "audit-log-max-files", a.MaxFiles, "How many old files are kept (0: all).")
}

func (f *flags) addOther() {
	fs := f.fs
	fs.StringVar(&f.configFile, "config-file", "",
		"A YAML file of settings, named as the flags or as in etcd's file. Flags and variables "+
			"beat it. SIGHUP reads log-level and log-format from it again.")
	fs.BoolVar(&f.version, "version", false, "Print the version and exit.")
}
