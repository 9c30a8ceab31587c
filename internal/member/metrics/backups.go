package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/backup/keeper"
)

// backups collects the metrics of a member that writes backups while it is the leader.
type backups struct{ keeper *keeper.Keeper }

var (
	backupLast = prometheus.NewDesc("leasehold_backup_last_full_timestamp_seconds",
		"Unix time of the newest verified full backup; 0 if unknown to this member, because "+
			"only the leader checks. Use the maximum over all members.", nil, nil)
	backupDue = prometheus.NewDesc("leasehold_backup_due_timestamp_seconds",
		"Unix time at which the next full backup is due, as far as this member knows. Use the "+
			"maximum over all members, and alert if it is long past.", nil, nil)
	backupLag = prometheus.NewDesc("leasehold_backup_log_lag_seconds",
		"Age of the oldest committed entry that is missing from the log backup; 0 except "+
			"on the leader.", nil, nil)
	backupFulls = prometheus.NewDesc("leasehold_backup_fulls_total",
		"Full backups that this member wrote and verified.", nil, nil)
	backupCopied = prometheus.NewDesc("leasehold_backup_log_entries_total",
		"Log entries that this member backed up and verified.", nil, nil)
	backupGaps = prometheus.NewDesc("leasehold_backup_gaps_total",
		"Gaps in the log backup: the log no longer had the next entry, so a full backup was made "+
			"instead.", nil, nil)
	backupFailures = prometheus.NewDesc("leasehold_backup_failures_total",
		"Failed attempts to open the target (open), back up the log (log), write a full backup "+
			"(full) or remove old ones (prune).",
		[]string{"what"}, nil)
)

// Describe implements prometheus.Collector.
func (m backups) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		backupLast, backupDue, backupLag, backupFulls, backupCopied, backupGaps, backupFailures,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m backups) Collect(out chan<- prometheus.Metric) {
	if m.keeper == nil {
		return
	}
	s := m.keeper.Stats()
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(backupLast, unixSeconds(s.LastFull))
	gauge(backupDue, unixSeconds(s.Due))
	gauge(backupLag, s.Lag.Seconds())
	count(backupFulls, s.Fulls)
	count(backupCopied, s.Copied)
	count(backupGaps, s.Gaps)
	count(backupFailures, s.OpenFailures, "open")
	count(backupFailures, s.LogFailures, "log")
	count(backupFailures, s.FullFailures, "full")
	count(backupFailures, s.PruneFailures, "prune")
}

// unixSeconds converts t to Unix time in seconds. It returns 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
