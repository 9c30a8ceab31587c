package metrics_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/client"
	"leasehold.dev/client/metrics"
	"leasehold.dev/test/inprocess"
)

// collector exports a client's metrics to Prometheus.
type collector struct{ client *client.Client }

// Describe implements prometheus.Collector. It sends no descriptions, so the collector is
// unchecked.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for n := range c.client.Metrics().All() {
		kind := prometheus.GaugeValue
		if n.Counter {
			kind = prometheus.CounterValue
		}
		labels := prometheus.Labels{}
		if n.Outcome != "" {
			labels["outcome"] = string(n.Outcome)
		}
		d := prometheus.NewDesc(n.Name, n.Help, nil, labels)
		out <- prometheus.MustNewConstMetric(d, kind, n.Value)
	}
}

// A program exports its client's metrics together with its own.
func Example() {
	endpoint, stop := inprocess.Alone()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{c})

	if _, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second}); err != nil {
		log.Fatal(err)
	}
	families, err := registry.Gather() // as promhttp.HandlerFor does
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "leasehold_client_connected", "leasehold_client_leases":
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// leasehold_client_connected 1
	// leasehold_client_leases 1
}

// Other monitoring systems receive the metrics under the same names.
func ExampleSnapshot_All() {
	s := metrics.Snapshot{
		Connected: true, Leases: 1, Valid: 8 * time.Second,
		Calls: map[metrics.Outcome]uint64{metrics.OK: 2, metrics.TimedOut: 1},
	}
	for n := range s.All() {
		if n.Value != 0 {
			fmt.Println(n.Name, n.Outcome, n.Value)
		}
	}
	// Output:
	// leasehold_client_connected  1
	// leasehold_client_leases  1
	// leasehold_client_valid_seconds  8
	// leasehold_client_calls_total ok 2
	// leasehold_client_calls_total timed_out 1
}
