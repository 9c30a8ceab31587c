package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/backup/keeper"
)

// backupMetrics tell of backups, at a member that is to make them whenever it leads.
type backupMetrics struct{ keeper *keeper.Keeper }

var (
	backupLast = prometheus.NewDesc("leasehold_backup_last_full_timestamp_seconds",
		"When the newest good backup of the whole state was made, in seconds of Unix time; 0 if "+
			"this member, which has to lead to look, knows of none. The largest of all members "+
			"counts.", nil, nil)
	backupDue = prometheus.NewDesc("leasehold_backup_due_timestamp_seconds",
		"When the next backup of the whole state is due, as far as this member knows. The largest "+
			"of all members counts: alert if that is long ago.", nil, nil)
	backupLag = prometheus.NewDesc("leasehold_backup_log_lag_seconds",
		"For how long the oldest entry has been committed that the copy of the log lacks, at the "+
			"leader; 0 at others.", nil, nil)
	backupFulls = prometheus.NewDesc("leasehold_backup_fulls_total",
		"Backups of the whole state that this member made and read back.", nil, nil)
	backupCopied = prometheus.NewDesc("leasehold_backup_log_entries_total",
		"Entries of the log that this member copied and read back.", nil, nil)
	backupGaps = prometheus.NewDesc("leasehold_backup_gaps_total",
		"Times that the log did not have any more what was to be copied, so that a backup of the "+
			"whole state was made instead.", nil, nil)
	backupFailures = prometheus.NewDesc("leasehold_backup_failures_total",
		"Attempts that failed: to look at the target (open), to copy the log (log), to make a "+
			"backup of the whole state (full), and to remove old ones (prune).",
		[]string{"what"}, nil)
)

// Describe implements prometheus.Collector.
func (m backupMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		backupLast, backupDue, backupLag, backupFulls, backupCopied, backupGaps, backupFailures,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m backupMetrics) Collect(out chan<- prometheus.Metric) {
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

// unixSeconds is 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
