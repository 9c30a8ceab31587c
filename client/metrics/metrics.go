// Package metrics has the numbers of a client, for programs that export them to what watches over
// them. It knows no monitoring system: [Snapshot.All] yields the numbers under the names that they
// should have in any. The package's example exports them to Prometheus.
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

// Outcome is how a call has ended.
type Outcome string

// The outcomes.
const (
	// OK: the cluster has done what it was asked.
	OK Outcome = "ok"
	// Refused: the answer is an error, such as client.ErrNameTaken, or that no endpoint will do.
	Refused Outcome = "refused"
	// Unavailable: nothing was done, as no member could until the call's context ended.
	Unavailable Outcome = "unavailable"
	// Unknown: the request may have taken effect, or may yet: client.ErrUnknownOutcome.
	Unknown Outcome = "unknown"
	// TimedOut: the call's deadline has passed.
	TimedOut Outcome = "timed_out"
	// Canceled: the program has given the call up, or has closed the client.
	Canceled Outcome = "canceled"
)

// outcomes are all outcomes, in order.
var outcomes = []Outcome{OK, Refused, Unavailable, Unknown, TimedOut, Canceled}

// Snapshot is the numbers of a client at a moment. What is counted is counted since the client was
// made.
type Snapshot struct {
	// Connected says whether there is a connection to a member now.
	Connected bool
	// Connects counts the connections of a client that had none, Disconnects those that broke or
	// were left because the member was silent or refused everything, Moves the changes to the member
	// that leads, and FailedConnects the tries of which no connection came.
	Connects, Disconnects, Moves, FailedConnects uint64
	// Calls counts the calls that have ended, by their outcomes. Renewals of the client, watches and
	// waiting for a turn are no calls.
	Calls map[Outcome]uint64

	// Leases are those that the client keeps alive now, in jeopardy or not, and InJeopardy those of
	// them that are past their validity.
	Leases, InJeopardy int
	// Valid is for how long all of them are valid yet, if none is renewed: 0 if one is in jeopardy,
	// or if there is none.
	Valid time.Duration
	// Renewals counts tries to renew a lease: those of a thousand leases in one message are a
	// thousand. RepeatedRenewals counts those of them that were made because the try before was
	// refused, could not be sent, or had no answer in time.
	Renewals, RepeatedRenewals uint64
	// Jeopardies counts how often a lease was not renewed in time and came into jeopardy, Expired
	// the leases that ended because they were not renewed in time, and Lost those of which the
	// cluster has said that they are gone.
	Jeopardies, Expired, Lost uint64
}

// Number is one number of a [Snapshot].
type Number struct {
	// Name begins with leasehold_client_. Prometheus takes it as it is.
	Name string
	// Help says what the number is.
	Help string
	// Counter says that the number only grows. Otherwise it is a gauge.
	Counter bool
	// Outcome, if it is not empty, is the value of the label "outcome": there is such a number for
	// each outcome.
	Outcome Outcome
	// Value is a number of things, or of seconds.
	Value float64
}

// All yields the numbers in a fixed order. That of the validity is left out while there is no
// lease.
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
