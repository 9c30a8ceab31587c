package serve

import "strconv"

// ignoredFlag is a flag of etcd 3.7 that has no effect here.
type ignoredFlag struct {
	name   string
	def    string // etcd's default, which causes no warning
	isBool bool
	hidden bool // etcd accepts it but does not document it
	why    string
}

// Reasons shared by several flags.
const (
	noDiscovery = "discovery is not supported; list the members in --initial-cluster"
	noBolt      = "there is no bbolt database"
	otherTraces = "set OTEL_EXPORTER_OTLP_ENDPOINT and the other OpenTelemetry variables instead"
	noRotation  = "log files are not rotated; use a tool such as logrotate"
	noOldFlag   = "etcd ignores it, too"
)

// ignored lists etcd's flags that have no effect here, with the reasons. Flags that would weaken
// security if they were ignored (revocation lists, allowed names) are implemented.
var ignored = []ignoredFlag{
	{name: "wal-dir", why: "the log is in --data-dir"},
	{
		name: "initial-election-tick-advance", def: "true", isBool: true,
		why: "a starting member finds the leader before it would start an election",
	},
	{name: "max-snapshots", def: "5", why: "one snapshot is kept"},
	{name: "max-wals", def: "5", why: "the log is truncated after every snapshot"},
	{
		name: "memory-mlock", def: "false", isBool: true,
		why: "the state is in memory; disable swap instead",
	},
	{name: "backend-bbolt-freelist-type", def: "map", why: noBolt},
	{name: "backend-batch-interval", why: noBolt},
	{name: "backend-batch-limit", def: "0", why: noBolt},
	{name: "bootstrap-defrag-threshold-megabytes", def: "0", why: noBolt},
	{name: "socket-reuse-port", def: "false", isBool: true, why: "each port belongs to one process"},
	{name: "socket-reuse-address", def: "false", isBool: true, why: "it is always on"},
	{name: "raft-read-timeout", def: "5s", why: "connections detect failures automatically"},
	{name: "raft-write-timeout", def: "5s", why: "connections detect failures automatically"},
	{name: "discovery", why: noDiscovery},
	{name: "discovery-token", why: noDiscovery},
	{name: "discovery-endpoints", why: noDiscovery},
	{name: "discovery-dial-timeout", def: "2s", why: noDiscovery},
	{name: "discovery-request-timeout", def: "5s", why: noDiscovery},
	{name: "discovery-keepalive-time", def: "2s", why: noDiscovery},
	{name: "discovery-keepalive-timeout", def: "6s", why: noDiscovery},
	{name: "discovery-insecure-transport", def: "true", isBool: true, why: noDiscovery},
	{name: "discovery-insecure-skip-tls-verify", def: "false", isBool: true, why: noDiscovery},
	{name: "discovery-cert", why: noDiscovery},
	{name: "discovery-key", why: noDiscovery},
	{name: "discovery-cacert", why: noDiscovery},
	{name: "discovery-user", why: noDiscovery},
	{name: "discovery-password", why: noDiscovery},
	{name: "discovery-fallback", def: "exit", why: noDiscovery},
	{name: "discovery-proxy", why: noDiscovery},
	{name: "discovery-srv", why: noDiscovery},
	{name: "discovery-srv-name", why: noDiscovery},
	{name: "v2-deprecation", def: "write-only", why: "there is no v2 store"},
	{
		name: "peer-skip-client-san-verification", def: "false", isBool: true,
		why: "host names in members' certificates are checked only against --peer-cert-allowed-hostname",
	},
	{name: "metrics", def: "basic", why: "all metrics are always served"},
	{name: "logger", def: "zap", why: "there is one logger"},
	{name: "enable-log-rotation", def: "false", isBool: true, why: noRotation},
	{name: "log-rotation-config-json", why: noRotation},
	{name: "warning-apply-duration", def: "100ms", why: "see the latency metrics instead"},
	{name: "enable-distributed-tracing", def: "false", isBool: true, why: otherTraces},
	{name: "distributed-tracing-address", def: "localhost:4317", why: otherTraces},
	{name: "distributed-tracing-service-name", def: "etcd", why: otherTraces},
	{name: "distributed-tracing-instance-id", why: otherTraces},
	{name: "distributed-tracing-sampling-rate", def: "0", why: otherTraces},
	{
		name: "compact-hash-check-time", def: "1m",
		why: "--corrupt-check-time compares the members' states",
	},
	{name: "compaction-batch-limit", def: "1000", why: "compaction does not delay writers"},
	{name: "compaction-sleep-interval", why: "compaction does not delay writers"},
	{
		name: "downgrade-check-time",
		why:  "each member checks the cluster version whenever it changes",
	},
	{name: "feature-gates", why: "etcd's features are always on or do not apply"},
	{
		name: "force-new-cluster", def: "false", isBool: true,
		why: "restore a snapshot to create a new cluster",
	},
	{name: "unsafe-no-fsync", def: "false", isBool: true, why: "every acknowledged write is synced"},
	{name: "cluster-active-size", hidden: true, why: noOldFlag},
	{name: "cluster-remove-delay", hidden: true, why: noOldFlag},
	{name: "cluster-sync-interval", hidden: true, why: noOldFlag},
	{name: "config", hidden: true, why: noOldFlag},
	{name: "force", hidden: true, why: noOldFlag},
	{name: "max-result-buffer", hidden: true, why: noOldFlag},
	{name: "max-retry-attempts", hidden: true, why: noOldFlag},
	{name: "peer-heartbeat-interval", hidden: true, why: noOldFlag},
	{name: "peer-election-timeout", hidden: true, why: noOldFlag},
	{name: "retry-interval", hidden: true, why: noOldFlag},
	{name: "snapshot", hidden: true, why: noOldFlag},
	{name: "v", hidden: true, why: noOldFlag},
	{name: "vv", hidden: true, why: noOldFlag},
	{name: "test.coverprofile", hidden: true, why: noOldFlag},
	{name: "test.outputdir", hidden: true, why: noOldFlag},
}

// ignoredValue accepts any value, but checks booleans.
type ignoredValue struct {
	flag ignoredFlag
	text string
}

// String implements flag.Value.
func (v *ignoredValue) String() string { return v.flag.def }

// Set implements flag.Value.
func (v *ignoredValue) Set(s string) error {
	if v.flag.isBool && !v.flag.hidden {
		on, err := strconv.ParseBool(s)
		if err != nil {
			return err
		}
		s = strconv.FormatBool(on)
	}
	v.text = s
	return nil
}

// IsBoolFlag reports whether the flag can be given without a value. As in etcd, this applies to all
// flags that etcd itself ignores.
func (v *ignoredValue) IsBoolFlag() bool { return v.flag.isBool || v.flag.hidden }
