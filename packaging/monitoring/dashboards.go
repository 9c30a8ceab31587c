package main

import "strings"

// inJob inserts the job name of a cluster into an expression.
func inJob(expr, job string) string { return strings.ReplaceAll(expr, "JOB", `job="`+job+`"`) }

// rate returns the rate of a counter, summed over all members.
func rate(name string) string { return "sum(rate(" + name + "{JOB}[$__rate_interval]))" }

// quantile returns a quantile of a histogram over all members.
func quantile(q, name string) string {
	return "histogram_quantile(" + q + ", sum by (le) (rate(" + name +
		"_bucket{JOB}[$__rate_interval])))"
}

// spread returns a panel with the median and a high quantile of a histogram.
func spread(title, name string) panel {
	return panel{title, "s", []query{
		{quantile("0.5", name), "median"},
		{quantile("0.99", name), "p99"},
	}}
}

// each returns a panel that shows a gauge of each member.
func each(title, unit, expr string) panel {
	return panel{title, unit, []query{{expr, "{{instance}}"}}}
}

var dashboards = []dashboard{
	{"overview", []panel{
		each("Members up", "short", `up{JOB}`),
		each("Leader", "short", `leasehold_is_leader{JOB}`),
		{"Alarms", "short", []query{{`max by (alarm) (leasehold_alarm{JOB})`, "{{alarm}}"}}},
		{"Calls", "reqps", []query{{
			`sum by (grpc_method) (rate(grpc_server_handled_total{JOB}[$__rate_interval]))`,
			"{{grpc_method}}",
		}}},
		{"Failed calls", "reqps", []query{{
			`sum by (grpc_code) (rate(grpc_server_handled_total{JOB, grpc_code!~"OK|Canceled"}` +
				`[$__rate_interval]))`,
			"{{grpc_code}}",
		}}},
		{"State and quota", "percentunit", []query{{
			`max(leasehold_state_bytes{JOB} / etcd_server_quota_backend_bytes{JOB})`, "used",
		}}},
		each("Resident memory", "bytes", `process_resident_memory_bytes{JOB}`),
		each("CPU", "short", `rate(process_cpu_seconds_total{JOB}[$__rate_interval])`),
		{"Certificate expiry in days", "d", []query{{
			`(leasehold_certificate_expiry_timestamp_seconds{JOB} - time()) / 86400`,
			"{{instance}} {{use}}",
		}}},
	}},
	{"leases", []panel{
		{"Leases and their keys", "short", []query{
			{`max(leasehold_leases{JOB})`, "leases"},
			{`max(leasehold_lease_attached_keys{JOB})`, "keys"},
		}},
		{"Granted, expired, revoked", "ops", []query{
			{`max(rate(leasehold_leases_granted_total{JOB}[$__rate_interval]))`, "granted"},
			{`max(rate(leasehold_leases_expired_total{JOB}[$__rate_interval]))`, "expired"},
			{`max(rate(leasehold_leases_revoked_total{JOB}[$__rate_interval]))`, "revoked"},
		}},
		{"Renewals", "ops", []query{
			{
				`sum by (outcome) (rate(leasehold_lease_renewals_total{JOB}[$__rate_interval]))`,
				"{{outcome}}",
			},
			{rate("leasehold_lease_renewal_near_misses_total"), "near misses"},
		}},
		spread("Expiry lateness", "leasehold_lease_expiry_lateness_seconds"),
		each("Most overdue lease", "s", `leasehold_lease_overdue_seconds{JOB}`),
		spread("Granted TTLs", "leasehold_lease_ttl_seconds"),
		{"Bytes", "bytes", []query{
			{`max(leasehold_lease_bytes{JOB})`, "leases"},
			{`max(leasehold_store_bytes{JOB})`, "keys"},
			{`max(leasehold_session_bytes{JOB})`, "sessions"},
		}},
		each("Watchers", "short", `leasehold_watchers{JOB}`),
		each("Clock jumps per hour", "short", `increase(leasehold_clock_jumps_total{JOB}[1h])`),
	}},
	{"caches", []panel{
		each("Open caches", "short", `leasehold_caches_open{JOB}`),
		{"Cached state", "short", []query{
			{`max(leasehold_leases_holding{JOB})`, "leases with cached ranges"},
			{`max(leasehold_cache_ranges{JOB})`, "keys and ranges"},
			{`max(leasehold_caches_wide{JOB})`, "wide caches"},
		}},
		{"Invalidations", "ops", []query{{rate("leasehold_cache_invalidations_total"), "sent"}}},
		spread("Write wait for caches", "leasehold_cache_wait_seconds"),
		each("Waiting writes", "short", `leasehold_cache_writes_waiting{JOB}`),
		{"Slow caches", "short", []query{
			{`max(leasehold_caches_pending{JOB})`, "not acknowledged yet"},
			{`sum(increase(leasehold_caches_outlived_total{JOB}[1h]))`, "outlived per hour"},
		}},
	}},
	{"raft-and-disk", []panel{
		spread("Log sync", "leasehold_log_sync_duration_seconds"),
		spread("Core step", "leasehold_apply_duration_seconds"),
		spread("Snapshot", "leasehold_snapshot_duration_seconds"),
		{"Entries applied", "ops", []query{{
			`max(rate(leasehold_raft_applied_index{JOB}[$__rate_interval]))`, "entries",
		}}},
		{"Replication lag in entries", "short", []query{{
			`max by (member) (leasehold_member_lag_entries{JOB})`, "{{member}}",
		}}},
		{"Round trip to other members, p99", "s", []query{{
			`histogram_quantile(0.99, sum by (instance, To, le) (rate(` +
				`etcd_network_peer_round_trip_time_seconds_bucket{JOB}[$__rate_interval])))`,
			"{{instance}} to {{To}}",
		}}},
		each("Leader changes per hour", "short",
			`increase(leasehold_leader_changes_total{JOB}[1h])`),
		each("Term", "short", `leasehold_raft_term{JOB}`),
		{"Bytes on disk", "bytes", []query{
			{`leasehold_disk_bytes{JOB}`, "{{instance}} all"},
			{`leasehold_log_bytes{JOB}`, "{{instance}} log"},
		}},
		{"Traffic between members", "Bps", []query{{
			`sum by (instance) (rate(etcd_network_peer_sent_bytes_total{JOB}[$__rate_interval]))`,
			"{{instance}}",
		}}},
		{"Messages dropped", "ops", []query{{
			`sum by (instance, To) (rate(etcd_network_peer_sent_failures_total{JOB}[$__rate_interval]))`,
			"{{instance}} to {{To}}",
		}}},
		each("Goroutines", "short", `go_goroutines{JOB}`),
	}},
}
