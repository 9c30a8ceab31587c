package capacity

import (
	"math"
	"testing"
	"time"
)

const s = time.Second

// Goal: capacity by hand. Method: round numbers.
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
	site.Leases = 1e30 // more cells than an integer counts
	if c, err = Size(site, DocumentedCosts(3)); err != nil || c.Cells < 1e20 {
		t.Errorf("far too many: %+v, %v", c, err)
	}
}
