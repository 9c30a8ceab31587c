package plan

import (
	"math"
	"testing"
	"time"
)

// TestCacheFigures checks Gray and Cheriton's figures for V. With 0.864 reads and 0.04 writes per
// second, a term of 10 s reduces the number of messages to about a tenth.
func TestCacheFigures(t *testing.T) {
	v := Sharing{
		Reads: 0.864, Writes: 0.04, Caches: 1,
		Propagation: time.Millisecond / 2, Processing: time.Millisecond, Skew: s / 10, Term: 10 * s,
	}
	c, err := ChooseCaches(v)
	if err != nil {
		t.Fatal(err)
	}
	if want := 10*s - 102500*time.Microsecond; c.Effective != want {
		t.Errorf("t_c = %v, want %v", c.Effective, want)
	}
	if c.At.Load < 0.10 || c.At.Load > 0.11 {
		t.Errorf("load %v of that without leases, want about a tenth", c.At.Load)
	}
	if c.Recommended < 10*s || c.Recommended > 11*s {
		t.Errorf("recommended: %v, want about 10 s", c.Recommended)
	}
	v.Caches = 10
	if c, err = ChooseCaches(v); err != nil {
		t.Fatal(err)
	}
	if math.Abs(c.Benefit-4.32) > 1e-9 || math.Abs(c.Limit-1/4.32) > 1e-9 {
		t.Errorf("alpha %v, limit %v", c.Benefit, c.Limit)
	}
	if load := v.Load(c.BreakEven); math.Abs(load-1) > 1e-6 {
		t.Errorf("at the break-even term %v the load is %v", c.BreakEven, load)
	}
	v.Caches = 100
	if c, err = ChooseCaches(v); err != nil || c.Worth || c.Recommended != 0 || c.At.Load < 2 {
		t.Errorf("with alpha %v leases do not pay: %v, %v", c.Benefit, c.Recommended, err)
	}
}

// TestExact checks the formulas to the nanosecond, using round numbers.
func TestExact(t *testing.T) {
	if v := (Sharing{Caches: 1}).Benefit(); !math.IsInf(v, 1) {
		t.Errorf("without writes the benefit is %v", v)
	}
	v := Sharing{Reads: 1, Caches: 1, Propagation: s, Processing: s}
	if d := v.Delay(0); d != 6*s {
		t.Errorf("without a lease a read waits %v", d)
	}
	c, err := ChooseCaches(Sharing{Reads: 1, Writes: 0.5, Caches: 2, Skew: s, Term: 20 * s})
	if err != nil {
		t.Fatal(err)
	}
	if c.BreakEven != 2*s {
		t.Errorf("leases pay from %v on", c.BreakEven)
	}
	begins, last := c.Curve[2].Term, c.Curve[len(c.Curve)-1].Term
	if begins != s+time.Microsecond || last != 60*s {
		t.Errorf("the curve is of %v to %v, behind its step", begins, last)
	}
}
