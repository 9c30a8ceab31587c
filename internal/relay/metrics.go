package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are what a relay counts.
type metrics struct {
	registry        *prometheus.Registry
	open, connected prometheus.Gauge
	calls, connects prometheus.Counter
	renewals        prometheus.Counter
	watches, shared prometheus.Gauge
}

func newMetrics(more ...prometheus.Collector) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "leasehold", Subsystem: "relay", Name: name, Help: help,
		})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "leasehold", Subsystem: "relay", Name: name, Help: help,
		})
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		open:      gauge("open_calls", "Calls and streams of clients that are under way."),
		connected: gauge("connected", "1 if there is a member to carry calls to, else 0."),
		calls:     counter("calls_total", "Calls and streams of clients."),
		connects:  counter("connects_total", "How often the relay has turned to a member."),
		renewals: counter("renewals_total",
			"Requests to renew leases that the relay answered by renewals of groups."),
		watches: gauge("watches", "Open watches of clients over leasehold.v1 that can be merged."),
		shared:  gauge("shared_watches", "Watches at the member that several of clients share."),
	}
	m.registry.MustRegister(more...)
	m.registry.MustRegister(m.open, m.connected, m.calls, m.connects, m.renewals,
		m.watches, m.shared,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}
