package logger

import "github.com/prometheus/client_golang/prometheus"

// Collectors returns the metrics of a log: how many lines its queues and its limit have dropped.
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
