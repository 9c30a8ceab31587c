package logger

import "github.com/prometheus/client_golang/prometheus"

// Collectors returns metrics about the log: the number of lines dropped by its queues and by its
// rate limit.
func Collectors(queued, limited func() uint64) (all []prometheus.Collector) {
	for reason, dropped := range map[string]func() uint64{
		"queue_full": queued, "rate_limit": limited,
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "leasehold", Subsystem: "log", Name: "lines_dropped_total",
			Help: "Lines missing from this process's log, because its reader was slow or gone, or " +
				"because one place in the code logged too often.",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() float64 { return float64(dropped()) }))
	}
	return all
}
