package sim

// draw draws a profile from the seed. Runs vary widely, because different bugs need different
// conditions to appear.
func (w *world) draw() Profile {
	r := w.rng
	p := Profile{
		Members: 3, Clients: 5 + r.IntN(4),
		Tick: 100 * Millisecond, ElectionTicks: 10,
		Drift:  1e-3,
		Faults: w.between(Second, 20*Second),
		Calm:   w.end / 3,
		Delay:  w.between(100, 20*Millisecond),
		Sync:   w.between(50, 20*Millisecond),
		Think:  w.between(200*Millisecond, 2*Second),

		SnapshotCount: uint64(20 + r.IntN(180)), Tail: uint64(r.IntN(20)),
		CheckpointInterval: int64(w.between(300*Millisecond, 20*Second) / Millisecond),
		Timeout:            w.between(500*Millisecond, 7*Second),
	}
	if w.chance(5) {
		p.Members = 5
	}
	if w.chance(3) {
		p.Tick = 50 * Millisecond
	}
	if w.chance(8) {
		p.Faults = 0
	}
	if w.chance(2) {
		p.Loss, p.Repeat = r.IntN(20000), r.IntN(20000)
	}
	if w.chance(2) {
		p.Margin = 10 * Millisecond
	}
	switch r.IntN(4) {
	case 0: // no drift at all
	case 1:
		p.Drift, p.RealDrift = 0.02, 0.02
	default:
		p.RealDrift = p.Drift
	}
	if w.chance(16) {
		p.Drift, p.RealDrift = 1e-3, 0.02 // beyond the bound
	}
	p.Weights = make([]int, len(faults))
	for i := range p.Weights {
		// A few kinds are frequent, and some never occur.
		p.Weights[i] = max(0, r.IntN(12)-4)
	}
	p.Scenario = w.drawScenario(&p)
	p.Compare = w.drawCompare(&p)
	return p
}
