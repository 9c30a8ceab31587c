package server

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// principalMetrics tell how much principals have of what there are limits for, and how much they
// were refused. Metrics are open to everybody who reaches the port, and a label takes memory
// wherever they go: so only as many principals have a label of their own as the setting says. All
// others count together, without a name.
type principalMetrics struct {
	node *node
	most int

	use, refusals *prometheus.Desc
}

// maxPrincipals bounds how many principals may be named by each metric.
const maxPrincipals = 1000

// maxLabel bounds the length of the name of one that is named.
const maxLabel = 256

// useWait is how long a scrape waits for the core.
const useWait = time.Second

func newPrincipalMetrics(n *node, most int) *principalMetrics {
	labels := []string{"principal", "resource"}
	return &principalMetrics{
		node: n, most: most,
		use: prometheus.NewDesc("leasehold_principal_use",
			"Use of limited resources, the same on every member. The largest principals are "+
				"named (--metrics-principals); all others are counted together, without a name.",
			labels, nil),
		refusals: prometheus.NewDesc("leasehold_limit_refusals_total",
			"Requests refused by a limit at this member. The principals refused first are named "+
				"(--metrics-principals); all others are counted together, without a name.",
			labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *principalMetrics) Describe(to chan<- *prometheus.Desc) { to <- m.use; to <- m.refusals }

// Collect implements prometheus.Collector. It asks this member alone, since a scrape is wanted most
// while there is no leader. While the core does not answer, what it counts is left out.
func (m *principalMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), useWait)
	defer cancel()
	ranked := make(chan *access.Ranking, 1) // made by the core, also after the time is over
	most := m.most
	if m.node.InspectHere(ctx, func(*lease.Lessor, uint64) {
		r := access.NewRanking(most)
		m.node.replica.Machine().Rank(r)
		ranked <- r
	}) == nil {
		m.send(to, <-ranked, access.Leases, access.LeaseKeys, access.Bytes)
	}
	for what := range access.Resource(access.Resources) {
		by := make(map[string]float64)
		for principal, n := range m.node.limits.Refusals(what) {
			by[label(principal)] += float64(n)
		}
		for name, n := range by {
			to <- prometheus.MustNewConstMetric(m.refusals, prometheus.CounterValue, n, name,
				what.String())
		}
	}
}

// send sends what a ranking has of resources.
func (m *principalMetrics) send(
	to chan<- prometheus.Metric, r *access.Ranking, of ...access.Resource,
) {
	for _, what := range of {
		by := map[string]float64{"": float64(r.Rest[what])}
		for _, p := range r.Top[what] {
			by[label(p.Principal)] += float64(p.Has)
		}
		for name, n := range by {
			to <- prometheus.MustNewConstMetric(m.use, prometheus.GaugeValue, n, name, what.String())
		}
	}
}

// label is the label of a principal: its name or, if that cannot be a label, none.
func label(principal string) string {
	if len(principal) > maxLabel || !utf8.ValidString(principal) {
		return ""
	}
	return principal
}
