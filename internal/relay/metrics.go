package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics contains the metrics of a relay.
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
		open:      gauge("open_calls", "Client calls and streams in progress."),
		connected: gauge("connected", "1 if the relay is connected to a member, else 0."),
		calls:     counter("calls_total", "Client calls and streams."),
		connects:  counter("connects_total", "Connections from the relay to members."),
		renewals: counter("renewals_total",
			"Requests to renew leases that the relay answered by renewing groups."),
		watches: gauge("watches", "Open client watches in leasehold.v1 that can be merged."),
		shared:  gauge("shared_watches", "Watches on the member shared by several clients."),
	}
	m.registry.MustRegister(more...)
	m.registry.MustRegister(m.open, m.connected, m.calls, m.connects, m.renewals,
		m.watches, m.shared,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}
