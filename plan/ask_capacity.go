package plan

import (
	"fmt"

	"github.com/spf13/pflag"
)

// CapacityQuestion asks what a given number of leases costs.
type CapacityQuestion struct {
	Site Site
	// Costs are the costs per lease. If it is nil, the documented costs are used.
	Costs *Costs

	memory, network, quota float64 // in GiB, Gbit/s and GiB
}

// Flags implements [Question].
func (q *CapacityQuestion) Flags(fs *pflag.FlagSet) {
	v := &q.Site
	fs.Float64Var(&v.Leases, "leases", 100_000, "number of leases")
	fs.DurationVar(&v.TTL, "ttl", DefaultTTL, "length of a lease")
	fs.DurationVar(&v.Renew, "renew", 0, "time between renewals (default: a third of the TTL)")
	fs.Float64Var(&v.Keys, "keys", 1, "number of small keys attached to each lease")
	fs.Float64Var(&v.Connections, "connections", 0,
		"number of client connections that share the leases (0: do not count them)")
	fs.BoolVar(&v.TLS, "tls", false, "assume that connections use TLS")
	fs.Float64Var(&v.Files, "files", 65_536,
		"open-file limit of each member, as in ulimit -n (0: no limit)")
	fs.IntVar(&v.Members, "members", 3, "number of members in a cell")
	fs.Float64Var(&v.Cores, "cores", 2, "number of cores of each member")
	fs.Float64Var(&q.memory, "memory", 8, "memory of each member, in GiB")
	fs.Float64Var(&q.quota, "quota", 2, "--quota-backend-bytes of each member, in GiB (0: no quota)")
	fs.Float64Var(&q.network, "network", 1, "network bandwidth of each member, in Gbit/s")
	fs.Float64Var(&v.Busy, "busy", 0.5, "usable fraction of cores, memory, network and files")
}

// Answer implements [Question].
func (q *CapacityQuestion) Answer() (Report, error) {
	v := q.Site
	v.Memory, v.Network, v.Quota = q.memory*(1<<30), q.network*1e9/8, q.quota*(1<<30)
	costs := q.Costs
	if costs == nil {
		documented := DocumentedCosts(v.Members)
		costs = &documented
	}
	c, err := Size(v, *costs)
	if err != nil {
		return Report{}, err
	}
	s := c.Site
	r := Report{
		Figures: [][2]string{
			{"leases", decimal(s.Leases)},
			{"length, renewal interval", fmt.Sprintf("%v, %s", s.TTL, short(s.Renew))},
			{"renewals per second", decimal(c.RenewalsASecond)},
			{"cells", fmt.Sprintf("%s of %d members", decimal(c.Cells), s.Members)},
			{"leader's network, Mbit/s", decimal(c.BytesASecond / c.Cells * 8 / 1e6)},
			{"leader's cores in use", decimal(c.Cores / c.Cells)},
			{"member's memory, GiB", decimal(c.Memory / c.Cells / (1 << 30))},
			{"member's quota in use, GiB", decimal(c.State / c.Cells / (1 << 30))},
		},
		Head:      []string{"resource", "leases per cell", "used"},
		Sentences: c.Explain(),
		Data:      c,
	}
	for _, l := range c.Limits {
		r.Rows = append(r.Rows, []string{l.Name, decimal(l.Leases), percent(l.Used)})
	}
	if q.Costs == nil {
		err = r.addSizes(v)
	}
	return r, err
}

// addSizes adds the number of leases that one member, a cell of three and many cells can carry,
// using the documented figures.
func (r *Report) addSizes(v Site) error {
	carried := func(members int) (float64, error) {
		v.Members = members
		c, err := Size(v, DocumentedCosts(members))
		return c.PerCell, err
	}
	one, err := carried(1)
	if err != nil {
		return err
	}
	three, err := carried(3)
	r.Figures = append(r.Figures,
		[2]string{"max leases, one member", decimal(one)},
		[2]string{"max leases, three members", decimal(three)},
		[2]string{"max leases, ten such cells", decimal(10 * three)})
	return err
}
