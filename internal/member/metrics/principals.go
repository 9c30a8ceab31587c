package metrics

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/access"
)

// principals collects how much of each limited resource the principals use, and how often their
// requests were rejected because of limits. Any client that can connect to the port can read
// metrics, and each label costs memory in the collecting system. So only some principals have
// labels: those that use the most, and those that were rejected first. The setting limits their
// number. All other principals are combined.
type principals struct{ of *Member }

// MaxPrincipals is the maximum number of principals that have their own labels in each metric.
const MaxPrincipals = 1000

// maxLabel is the maximum length of a name in a label.
const maxLabel = 256

// useWait is how long a scrape waits for the core.
const useWait = time.Second

var (
	principalLabels = []string{"principal", "resource"}
	principalUse    = prometheus.NewDesc("leasehold_principal_use",
		"Usage of limited resources, the same on every member. The principals that use the most "+
			"are named (--metrics-principals); all others are combined, without a name.",
		principalLabels, nil)
	limitRefusals = prometheus.NewDesc("leasehold_limit_refusals_total",
		"Requests that this member rejected because of a limit. The principals rejected first "+
			"are named (--metrics-principals); all others are combined, without a name.",
		principalLabels, nil)
)

// Describe implements prometheus.Collector.
func (m principals) Describe(to chan<- *prometheus.Desc) {
	to <- principalUse
	to <- limitRefusals
}

// Collect implements prometheus.Collector. It reads only this member's state, because metrics are
// most important when there is no leader. If the core does not respond, it omits resource usage.
func (m principals) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), useWait)
	defer cancel()
	if r := access.NewRanking(m.of.Principals); m.of.Rank(ctx, r) {
		sendUse(to, r, access.Leases, access.LeaseKeys, access.Bytes)
	}
	for what := range access.Resource(access.Resources) {
		by := make(map[string]float64)
		for principal, n := range m.of.Refusals(what) {
			by[label(principal)] += float64(n)
		}
		for name, n := range by {
			to <- prometheus.MustNewConstMetric(limitRefusals, prometheus.CounterValue, n,
				name, what.String())
		}
	}
}

// sendUse sends metrics about resource usage.
func sendUse(to chan<- prometheus.Metric, r *access.Ranking, of ...access.Resource) {
	for _, what := range of {
		by := map[string]float64{"": float64(r.Rest[what])}
		for _, p := range r.Top[what] {
			by[label(p.Principal)] += float64(p.Has)
		}
		for name, n := range by {
			to <- prometheus.MustNewConstMetric(principalUse, prometheus.GaugeValue, n, name,
				what.String())
		}
	}
}

// label returns the label for a principal. It is the principal's name, or "" if that is not a valid
// label.
func label(principal string) string {
	if len(principal) > maxLabel || !utf8.ValidString(principal) {
		return ""
	}
	return principal
}
