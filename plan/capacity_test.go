package plan

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestSize checks capacities against hand calculations with round numbers.
func TestSize(t *testing.T) {
	site := Site{
		Leases: 1e6, TTL: 10 * s, Renew: 5 * s, Keys: 1, Members: 3,
		Cores: 2, Memory: 8e9, Network: 125e6, Busy: 0.5,
	}
	c, err := Size(site, Costs{
		Renew: 10 * time.Microsecond, Grant: 100 * time.Microsecond, RenewBytes: 100,
		LeaseBytes: 300, KeyBytes: 1000, Expiries: 100_000, Restart: 2 * s,
	})
	if err != nil {
		t.Fatal(err)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*b }
	if !near(c.RenewalsASecond, 200_000) || !near(c.Cores, 2) || !near(c.Memory,
		1.3e9) || !near(c.BytesASecond, 20e6) {
		t.Errorf("load: %+v", c)
	}
	if !near(c.PerCell, 500_000) || c.Cells != 2 || c.Limits[0].Name != "CPU of the leader" {
		t.Errorf("limits: %+v", c)
	}
	if c.AllEnd != 5*s || c.GrantAll != 50*s || c.Restart != s {
		t.Errorf("bad day: %+v", c)
	}
	site.Leases = 1e30 // more cells than fit in an int
	if c, err = Size(site, DocumentedCosts(3)); err != nil || c.Cells < 1e20 {
		t.Errorf("far too many: %+v, %v", c, err)
	}
}

// TestConnections checks connection counts against hand calculations. First there is one connection
// for every two leases. Then there are more connections than leases, and only connections with a
// lease send anything.
func TestConnections(t *testing.T) {
	site := Site{
		Leases: 1000, TTL: 10 * s, Renew: 5 * s, Members: 1, Connections: 500,
		Cores: 2, Memory: 8e9, Network: 125e6, Busy: 0.5, Files: 1000,
	}
	costs := Costs{
		Renew: 10 * time.Microsecond, RenewBytes: 100, LeaseBytes: 300,
		ConnBytes: 40_000, ConnTLSBytes: 60_000, ConnRenew: 90 * time.Microsecond, ConnRenewBytes: 200,
	}
	for _, tt := range []struct {
		connections          float64
		tls                  bool
		cores, bytes, memory float64
		carries              float64
	}{
		{0, false, 200 * 10e-6, 200 * 100, 300_000, 500_000},
		{500, false, 200 * 50e-6, 200 * 200, 20.3e6, 2000},
		{500, true, 200 * 50e-6, 200 * 200, 30.3e6, 2000},
		{2000, false, 200 * 90e-6, 200 * 300, 80.3e6, 500},
	} {
		site.Connections, site.TLS = tt.connections, tt.tls
		c, err := Size(site, costs)
		if err != nil {
			t.Fatal(err)
		}
		for what, pair := range map[string][2]float64{
			"cores": {c.Cores, tt.cores}, "bytes a second": {c.BytesASecond, tt.bytes},
			"memory": {c.Memory, tt.memory}, "leases of a cell": {c.PerCell, tt.carries},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-9*pair[1] {
				t.Errorf("%g connections, TLS %t: %s: %g, want %g", tt.connections, tt.tls, what,
					pair[0], pair[1])
			}
		}
		files := c.Limits[0].Name == "open files of the leader"
		if files != (tt.connections > 0) {
			t.Errorf("%g connections: the first to run out is %s", tt.connections, c.Limits[0].Name)
		}
	}
}

// TestOneLimit checks that no second limit is reported if only one resource can run out.
func TestOneLimit(t *testing.T) {
	site := Site{Leases: 1, TTL: s, Members: 1, Cores: 1, Memory: 1, Network: 1, Busy: 1}
	c, err := Size(site, Costs{Renew: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(c.Explain(), "\n"); strings.Contains(text, "the next is") {
		t.Error(text)
	}
}
