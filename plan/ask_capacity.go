package plan

import (
	"fmt"

	"github.com/spf13/pflag"
)

// CapacityQuestion asks what a number of leases costs.
type CapacityQuestion struct {
	Site Site
	// Costs may be nil, which means the documented costs.
	Costs *Costs

	memory, network, quota float64 // in GiB, Gbit/s and GiB
}

// Flags implements [Question].
func (q *CapacityQuestion) Flags(fs *pflag.FlagSet) {
	v := &q.Site
	fs.Float64Var(&v.Leases, "leases", 100_000, "number of leases")
	fs.DurationVar(&v.TTL, "ttl", DefaultTTL, "length of a lease")
	fs.DurationVar(&v.Renew, "renew", 0, "time between two renewals (default: a third of the TTL)")
	fs.Float64Var(&v.Keys, "keys", 1, "small keys on each lease")
	fs.Float64Var(&v.Connections, "connections", 0,
		"connections of clients that the leases are spread over; 0: do not count them")
	fs.BoolVar(&v.TLS, "tls", false, "the connections are encrypted")
	fs.Float64Var(&v.Files, "files", 65_536, "open files of each member (ulimit -n); 0: any number")
	fs.IntVar(&v.Members, "members", 3, "members of a cell")
	fs.Float64Var(&v.Cores, "cores", 2, "cores of each member")
	fs.Float64Var(&q.memory, "memory", 8, "memory of each member, in GiB")
	fs.Float64Var(&q.quota, "quota", 2, "--quota-backend-bytes of each member, in GiB; 0: none")
	fs.Float64Var(&q.network, "network", 1, "network of each member, in Gbit/s")
	fs.Float64Var(&v.Busy, "busy", 0.5, "fraction of cores, memory, network and files that may be used")
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
			{"length, renewed every", fmt.Sprintf("%v, %s", s.TTL, short(s.Renew))},
			{"renewals a second", decimal(c.RenewalsASecond)},
			{"cells", fmt.Sprintf("%s, members of each: %d", decimal(c.Cells), s.Members)},
			{"a leader's network, Mbit/s", decimal(c.BytesASecond / c.Cells * 8 / 1e6)},
			{"a leader's cores, kept busy", decimal(c.Cores / c.Cells)},
			{"a member's memory, GiB", decimal(c.Memory / c.Cells / (1 << 30))},
			{"of its quota, GiB", decimal(c.State / c.Cells / (1 << 30))},
		},
		Head:      []string{"what runs out", "leases a cell", "used by the asked number"},
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

// addSizes adds the numbers of leases that a member, a cell of three and many cells carry, by the
// documented figures.
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
		[2]string{"one member carries", decimal(one)},
		[2]string{"a cell of three members carries", decimal(three)},
		[2]string{"ten such cells carry", decimal(10 * three)})
	return err
}
