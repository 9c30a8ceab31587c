// Package metrics contains a client's metrics, for programs that export them to a monitoring
// system. The package does not depend on any monitoring system: [Snapshot.All] yields the metrics
// with their names. The package example exports them to Prometheus.
//
//	for n := range c.Metrics().All() {
//		fmt.Println(n.Name, n.Value)
//	}
package metrics

import (
	"iter"
	"slices"
	"time"
)

// Outcome describes how a call ended.
type Outcome string

// The possible outcomes.
const (
	// OK means that the cluster did what the call requested.
	OK Outcome = "ok"
	// Refused means that the cluster answered with an error, such as client.ErrNameTaken, or that
	// no endpoint is usable.
	Refused Outcome = "refused"
	// Unavailable means that no member could serve the request before the call's context ended, and
	// that nothing has changed.
	Unavailable Outcome = "unavailable"
	// Unknown means that the request may have taken effect, or may still do so. See
	// client.ErrUnknownOutcome.
	Unknown Outcome = "unknown"
	// TimedOut means that the call's deadline passed.
	TimedOut Outcome = "timed_out"
	// Canceled means that the program canceled the call or closed the client.
	Canceled Outcome = "canceled"
)

// outcomes lists all outcomes.
var outcomes = []Outcome{OK, Refused, Unavailable, Unknown, TimedOut, Canceled}

// Snapshot contains a client's metrics at one point in time. Counters start at zero when the client
// is created.
type Snapshot struct {
	// Connected reports whether the client is connected to a member.
	Connected bool
	// Connects counts the connections made while the client had none. Disconnects counts
	// connections that broke, or that the client closed because the member was unresponsive or
	// rejected all requests. Moves counts moves to the leader, and FailedConnects counts failed
	// connection attempts.
	Connects, Disconnects, Moves, FailedConnects uint64
	// Calls counts completed calls by outcome. The client's renewals, watches and waiting tickets
	// do not count as calls.
	Calls map[Outcome]uint64

	// Leases is the number of leases that the client is keeping alive. InJeopardy is the number of
	// leases in jeopardy: they are no longer valid, but may not have ended yet.
	Leases, InJeopardy int
	// Valid is how long all of these leases would stay valid without renewals. It is 0 if one of
	// them is in jeopardy, or if there are no leases.
	Valid time.Duration
	// Renewals counts attempts to renew a lease; a message that renews a thousand leases counts as
	// a thousand. RepeatedRenewals counts those that follow an attempt that was rejected, could not
	// be sent, or was not answered in time.
	Renewals, RepeatedRenewals uint64
	// Jeopardies counts how many times a lease entered jeopardy because it was not renewed in time.
	// Expired counts leases that ended because they were not renewed in time. Lost counts leases
	// that ended because the cluster reported that they no longer exist.
	Jeopardies, Expired, Lost uint64
}

// Number is one metric of a [Snapshot].
type Number struct {
	// Name starts with leasehold_client_. It is a valid metric name for Prometheus.
	Name string
	// Help describes the metric.
	Help string
	// Counter is true for a counter, which never decreases, and false for a gauge.
	Counter bool
	// Outcome, if not empty, is the value of the label "outcome". There is one Number per outcome.
	Outcome Outcome
	// Value is a count or a time in seconds.
	Value float64
}

// All yields the metrics in a fixed order. If there are no leases, it omits Valid.
func (s Snapshot) All() iter.Seq[Number] {
	connected := 0.0
	if s.Connected {
		connected = 1
	}
	list := []Number{
		gauge("connected", "1 while connected to a member, else 0.", connected),
		counter("connects_total", "Connections made while disconnected.", s.Connects),
		counter("disconnects_total", "Connections that broke or were abandoned.", s.Disconnects),
		counter("moves_total", "Moves of the connection to the leader.", s.Moves),
		counter("failed_connects_total", "Failed attempts to connect to a member.", s.FailedConnects),
		gauge("leases", "Leases that the client keeps alive.", float64(s.Leases)),
		gauge("leases_in_jeopardy",
			"Leases in jeopardy: no longer valid, but possibly not expired yet.",
			float64(s.InJeopardy)),
		counter("renewals_total", "Attempts to renew a lease.", s.Renewals),
		counter("repeated_renewals_total", "Retries of failed lease renewals.",
			s.RepeatedRenewals),
		counter("jeopardies_total", "Number of times that a lease entered jeopardy.", s.Jeopardies),
		counter("expired_leases_total", "Leases that ended because they were not renewed in time.",
			s.Expired),
		counter("lost_leases_total", "Leases that the cluster reported as gone.", s.Lost),
	}
	if s.Leases > 0 {
		list = append(list, gauge("valid_seconds",
			"Time until the first lease becomes invalid without renewals.", s.Valid.Seconds()))
	}
	for _, o := range outcomes {
		n := counter("calls_total", "Completed calls.", s.Calls[o])
		n.Outcome = o
		list = append(list, n)
	}
	return slices.Values(list)
}

// prefix is the common prefix of all metric names.
const prefix = "leasehold_client_"

func gauge(name, help string, v float64) Number {
	return Number{Name: prefix + name, Help: help, Value: v}
}

func counter(name, help string, v uint64) Number {
	return Number{Name: prefix + name, Help: help, Counter: true, Value: float64(v)}
}
