// Package metrics has the numbers of a client, for programs that export them to a monitoring
// system. It does not depend on any: [Snapshot.All] yields the numbers with their names. The
// package's example exports them to Prometheus.
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

// Outcome is how a call ended.
type Outcome string

// The outcomes.
const (
	// OK: the cluster has done what it was asked.
	OK Outcome = "ok"
	// Refused: the cluster answered with an error, such as client.ErrNameTaken, or no endpoint is
	// usable.
	Refused Outcome = "refused"
	// Unavailable: nothing was done, as no member could until the call's context ended.
	Unavailable Outcome = "unavailable"
	// Unknown: the request may have taken effect, or may yet: client.ErrUnknownOutcome.
	Unknown Outcome = "unknown"
	// TimedOut: the call's deadline has passed.
	TimedOut Outcome = "timed_out"
	// Canceled: the program cancelled the call, or closed the client.
	Canceled Outcome = "canceled"
)

// outcomes are all outcomes, in order.
var outcomes = []Outcome{OK, Refused, Unavailable, Unknown, TimedOut, Canceled}

// Snapshot has the numbers of a client at one moment. Counters begin when the client is made.
type Snapshot struct {
	// Connected says whether the client is connected to a member.
	Connected bool
	// Connects counts connections made while the client had none. Disconnects counts connections
	// that broke, or that the client left because the member was silent or refused everything.
	// Moves counts changes to the leader, FailedConnects tries to connect that failed.
	Connects, Disconnects, Moves, FailedConnects uint64
	// Calls counts ended calls by outcome. The client's renewals, watches and waiting tickets are
	// not calls.
	Calls map[Outcome]uint64

	// Leases is how many leases the client keeps alive now; InJeopardy is how many of them are in
	// jeopardy: no longer valid, but perhaps still alive.
	Leases, InJeopardy int
	// Valid is how long all these leases stay valid if none is renewed; 0 if one is in jeopardy,
	// or if there is none.
	Valid time.Duration
	// Renewals counts tries to renew a lease; one message for a thousand leases counts a
	// thousand. RepeatedRenewals counts those of them whose earlier try was refused, could not be
	// sent, or had no answer in time.
	Renewals, RepeatedRenewals uint64
	// Jeopardies counts how often a lease came into jeopardy, as it was not renewed in time.
	// Expired counts leases that ended because they were not renewed in time, and Lost leases
	// that ended because the cluster said that they are gone.
	Jeopardies, Expired, Lost uint64
}

// Number is one number of a [Snapshot].
type Number struct {
	// Name begins with leasehold_client_. Prometheus takes it as it is.
	Name string
	// Help says what the number is.
	Help string
	// Counter says that the number is a counter, which only grows. Otherwise it is a gauge.
	Counter bool
	// Outcome, if not empty, is the value of the label "outcome": there is one number for each
	// outcome.
	Outcome Outcome
	// Value is a count, or a time in seconds.
	Value float64
}

// All yields the numbers in a fixed order. It leaves Valid out while there is no lease.
func (s Snapshot) All() iter.Seq[Number] {
	connected := 0.0
	if s.Connected {
		connected = 1
	}
	list := []Number{
		gauge("connected", "1 if there is a connection to a member", connected),
		counter("connects_total", "connections of a client that had none", s.Connects),
		counter("disconnects_total", "connections that broke or were left", s.Disconnects),
		counter("moves_total", "changes to the member that leads", s.Moves),
		counter("failed_connects_total", "tries to connect to a member that failed", s.FailedConnects),
		gauge("leases", "leases that are kept alive", float64(s.Leases)),
		gauge("leases_in_jeopardy", "leases past their validity", float64(s.InJeopardy)),
		counter("renewals_total", "tries to renew a lease", s.Renewals),
		counter("repeated_renewals_total", "tries to renew a lease after one that failed",
			s.RepeatedRenewals),
		counter("jeopardies_total", "leases that came into jeopardy", s.Jeopardies),
		counter("expired_leases_total", "leases that were not renewed in time", s.Expired),
		counter("lost_leases_total", "leases that the cluster said to be gone", s.Lost),
	}
	if s.Leases > 0 {
		list = append(list, gauge("valid_seconds", "for how long all leases are valid yet",
			s.Valid.Seconds()))
	}
	for _, o := range outcomes {
		n := counter("calls_total", "calls that have ended", s.Calls[o])
		n.Outcome = o
		list = append(list, n)
	}
	return slices.Values(list)
}

// prefix is what the names begin with.
const prefix = "leasehold_client_"

func gauge(name, help string, v float64) Number {
	return Number{Name: prefix + name, Help: help, Value: v}
}

func counter(name, help string, v uint64) Number {
	return Number{Name: prefix + name, Help: help, Counter: true, Value: float64(v)}
}
