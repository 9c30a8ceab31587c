package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Costs are the costs of leases on a server, as measured by leasehold bench.
type Costs struct {
	// Source names the source of the figures.
	Source string
	// Renew and Grant are the CPU time per renewal and per grant at the busiest member.
	Renew, Grant time.Duration
	// RenewBytes is the network traffic per renewal, in both directions.
	RenewBytes float64
	// LeaseBytes is the resident memory per lease at each member. KeyBytes is the resident memory
	// for a small key attached to it.
	LeaseBytes, KeyBytes float64
	// ConnBytes is the resident memory per connection with an open stream, at the member that
	// serves it. ConnTLSBytes is the same for an encrypted connection. ConnRenew is the CPU time
	// per message if the leases of each connection are renewed in a separate message.
	// ConnRenewBytes is the network traffic that each such message adds to RenewBytes.
	ConnBytes, ConnTLSBytes, ConnRenewBytes float64
	ConnRenew                               time.Duration
	// LeaseState and KeyState are the number of bytes that a lease and a key add to
	// leasehold_state_bytes, which is limited by the quota of a member. They are computed, not
	// measured.
	LeaseState, KeyState float64
	// Expiries is the number of leases that can be ended per second if many expire at the same
	// time.
	Expiries float64
	// Restart is the duration of a restart with a million leases.
	Restart time.Duration
}

// DocumentedCosts returns the figures from docs/benchmarks.md. They were measured on two cores that
// were shared with the load generator. They are examples, not promises.
func DocumentedCosts(members int) Costs {
	c := Costs{
		Source: "docs/benchmarks.md, one member on two cores",
		Renew:  3400 * time.Nanosecond, Grant: 48800 * time.Nanosecond, RenewBytes: 80,
		LeaseBytes: 248, KeyBytes: 1257 - 248, LeaseState: 200, KeyState: 420,
		ConnBytes: 9_000, ConnTLSBytes: 20_000, ConnRenewBytes: 210,
		ConnRenew: 90 * time.Microsecond,
		Expiries:  130_000, Restart: 1200 * time.Millisecond,
	}
	if members > 1 {
		// These figures are totals for three processes. They are used for the leader, which is the
		// busiest process.
		c.Source = "docs/benchmarks.md, three members on two cores"
		c.Renew, c.Grant = 4600*time.Nanosecond, 65_300*time.Nanosecond
	}
	return c
}

// A Site describes a number of leases and the machines that serve them.
type Site struct {
	// Leases is the number of leases. Each is renewed every Renew; 0 means a third of TTL.
	Leases     float64
	TTL, Renew time.Duration
	// Keys is the number of small keys per lease.
	Keys float64
	// Connections is the number of client connections that the leases are spread over. All of them
	// are connected to the leader. 0 ignores connections, for sites where only a few clients renew
	// all the leases. TLS means that the connections are encrypted.
	Connections float64
	TLS         bool
	// Members is the number of members in a cell. Each has Cores, Memory (in bytes), Network (in
	// bytes per second), and at most Files open files; 0 means that Files is not limited.
	Members                int
	Cores, Memory, Network float64
	Files                  float64
	// Busy is the fraction of these resources that can be used. The rest is kept in reserve.
	Busy float64
	// Quota is the maximum size of the state in bytes (--quota-backend-bytes). 0 means no limit.
	Quota float64
}

func (s Site) check() error {
	err := finite(
		number("number of leases", s.Leases),
		number("keys on a lease", s.Keys),
		number("number of connections", s.Connections),
		number("open files", s.Files),
		number("cores", s.Cores),
		number("memory", s.Memory),
		number("network", s.Network),
		number("quota", s.Quota),
	)
	if err != nil {
		return err
	}
	if err := (Holder{TTL: s.TTL, Renew: s.Renew}).Check(); err != nil {
		return err
	}
	switch {
	case s.Leases < 1:
		return inputErrorf("number of leases", "use 1 or more", "is %v", s.Leases)
	case s.Cores == 0:
		return inputErrorf("cores", "specify the number of cores of one member", "is 0")
	case s.Memory == 0:
		return inputErrorf("memory", "specify the memory of one member", "is 0")
	case s.Network == 0:
		return inputErrorf("network", "specify the bandwidth of one member", "is 0")
	case s.Members < 1 || s.Members > 7:
		return inputErrorf("number of members", "use 1, or 3 to 7", "is %d", s.Members)
	case s.Busy <= 0 || s.Busy > 1:
		return inputErrorf("share in use", "use a value above 0 and at most 1, such as 0.5",
			"is %v", s.Busy)
	}
	return nil
}

// A Limit is the number of leases that a resource can support.
type Limit struct {
	// Name names the resource.
	Name string
	// Leases is the number of leases that exhausts the resource in one cell. Used is the fraction
	// of the resource that the given number of leases uses.
	Leases, Used float64
}

// A Capacity describes the load caused by a number of leases.
type Capacity struct {
	Site  Site
	Costs Costs
	// RenewalsASecond and BytesASecond are the load on the leader, which handles all renewals.
	// Cores is the number of cores that this load keeps busy. Memory is in bytes, at each member.
	RenewalsASecond, BytesASecond, Cores, Memory float64
	// State is the size of the state. It is limited by the quota.
	State float64
	// Limits holds the resources' limits, tightest first.
	Limits []Limit
	// PerCell is the number of leases that one cell of these members can support. Cells is the
	// number of cells needed.
	PerCell, Cells float64
	// AllEnd is how long it takes to end all leases if all holders die at the same time. GrantAll
	// is how long it takes to grant all of them again. Restart is how long a restarted member is
	// unavailable.
	AllEnd, GrantAll, Restart time.Duration
}

func (c Costs) check() error {
	err := finite(
		number("bytes of a renewal", c.RenewBytes),
		number("bytes of a lease", c.LeaseBytes),
		number("bytes of a key", c.KeyBytes),
		number("bytes of a connection", c.ConnBytes),
		number("bytes of an encrypted connection", c.ConnTLSBytes),
		number("bytes of a message", c.ConnRenewBytes),
		number("state of a lease", c.LeaseState),
		number("state of a key", c.KeyState),
		number("expiries a second", c.Expiries),
	)
	if err == nil {
		err = bounded(
			span("CPU time of a renewal", c.Renew),
			span("CPU time of a message", c.ConnRenew),
			span("CPU time of a grant", c.Grant),
			span("time of a restart", c.Restart),
		)
	}
	return err
}

// need is the amount of a resource that each lease needs, and the amount available.
type need struct {
	name         string
	cost, budget float64
}

// needs returns CPU, memory, network, quota and open files, in that order.
func (s Site) needs(c Costs) []need {
	rate := 1 / s.Renew.Seconds()
	conns := s.Connections / s.Leases
	conn := c.ConnBytes
	if s.TLS {
		conn = c.ConnTLSBytes
	}
	messages := min(conns, 1) // each message renews the leases of one connection that has any
	return []need{
		{
			"CPU of the leader",
			rate * (messages*c.ConnRenew.Seconds() + (1-messages)*c.Renew.Seconds()), s.Cores,
		},
		{"memory of a member", c.LeaseBytes + s.Keys*c.KeyBytes + conns*conn, s.Memory},
		{"network of the leader", rate * (c.RenewBytes + messages*c.ConnRenewBytes), s.Network},
		// These two resources can be used up completely, without a reserve.
		{"quota", c.LeaseState + s.Keys*c.KeyState, s.Quota / s.Busy},
		{"open files of the leader", conns, s.Files / s.Busy},
	}
}

// Size computes the load caused by a number of leases.
func Size(s Site, c Costs) (Capacity, error) {
	if err := s.check(); err != nil {
		return Capacity{}, err
	}
	if err := c.check(); err != nil {
		return Capacity{}, err
	}
	s.Renew = Holder{TTL: s.TTL, Renew: s.Renew}.Interval()
	each := s.needs(c)
	out := Capacity{
		Site: s, Costs: c,
		RenewalsASecond: s.Leases / s.Renew.Seconds(), BytesASecond: s.Leases * each[2].cost,
		Cores: s.Leases * each[0].cost, Memory: s.Leases * each[1].cost,
		State: s.Leases * each[3].cost,
	}
	for _, e := range each {
		if e.cost > 0 && e.budget > 0 {
			n := e.budget * s.Busy / e.cost
			out.Limits = append(out.Limits, Limit{e.name, n, s.Leases / n})
		}
	}
	if len(out.Limits) == 0 {
		return Capacity{}, inputErrorf("costs", "measure with leasehold bench -o json", "are all 0")
	}
	slices.SortStableFunc(out.Limits, func(a, b Limit) int {
		return cmp.Compare(a.Leases,
			b.Leases)
	})
	out.PerCell = out.Limits[0].Leases
	out.Cells = math.Floor((s.Leases-1)/out.PerCell) + 1
	if c.Expiries > 0 {
		out.AllEnd = seconds(s.Leases / out.Cells / c.Expiries)
	}
	out.GrantAll = seconds(s.Leases / out.Cells * c.Grant.Seconds() / (s.Cores * s.Busy))
	out.Restart = scaled(c.Restart, s.Leases/out.Cells/1e6)
	return out, nil
}

// Explain describes the result in sentences.
func (c Capacity) Explain() []string {
	s := c.Site
	out := []string{fmt.Sprintf("%s leases of %v, renewed every %v, cause %s renewals and %s bytes "+
		"per second. All pass through the leader, so adding members does not help.", counted(s.Leases),
		s.TTL,
		rounded(s.Renew), counted(c.RenewalsASecond), counted(c.BytesASecond))}
	first := c.Limits[0]
	text := fmt.Sprintf("One cell of this size carries %s leases at %.0f%% utilization. "+
		"Its first limit is the %s", counted(c.PerCell), 100*s.Busy, first.Name)
	if len(c.Limits) > 1 {
		next := c.Limits[1]
		text += fmt.Sprintf(", and the next is the %s at %s", next.Name,
			counted(next.Leases))
	}
	out = append(out, text+".")
	if c.Cells > 1 {
		out = append(out,
			fmt.Sprintf("%s leases need %s cells (split the names by hash), or a longer lease: "+
				"doubling the length halves the renewals.", counted(s.Leases),
				counted(c.Cells)))
	}
	out = append(out, fmt.Sprintf("If all holders die, all leases of a cell end within %v of the "+
		"first. Granting them again takes %v. A member restarts in %v.",
		rounded(c.AllEnd), rounded(c.GrantAll), rounded(c.Restart)))
	note := ". Connections are not counted: pass --connections."
	if s.Connections > 0 {
		note = "."
		out = append(out, fmt.Sprintf("In the worst case the leader has all %s connections, and each "+
			"sends a message per renewal. Longer leases reduce the messages; relays save the members memory "+
			"and open files.", counted(s.Connections)))
	}
	return append(out, "Figures: "+c.Costs.Source+note+" Measure your own with leasehold bench.")
}
