package sim

import "math/rand/v2"

// Scenario is what only a part of the runs has, each kind for itself: in all of them it
// would hide more than it shows.
type Scenario struct {
	// Codec passes every message between members through its encoding.
	Codec bool
	// Room is how many bytes of entries may wait for their commit: beyond it a leader
	// refuses commands, its own expiries too (T12). 0 means so many that nobody meets the
	// bound.
	Room uint64
	// Lag is for how long a watch's stream stands still now and then, in the mean: the client
	// does not read, and what happens meanwhile piles up behind the stream. 0 for never.
	Lag Time
	// Depose is the mean time between two faults that depose a leader (injector.depose), beside
	// all others. 0 for none.
	Depose Time
	// Reelect is the mean time between two faults that depose a leader and have it elected again
	// (injector.reelect). 0 for none.
	Reelect Time
	// Sleep is for how long all machines sleep at the end of the faults, as those of one host do
	// (T10). 0 for not at all.
	Sleep Time
	// RestartAll is when all members die and start again, in a run without other faults. 0 for
	// never.
	RestartAll Time
	// StaleLeader has leaders that are replaced and do not know it, and clients that ask them.
	StaleLeader StaleLeader
	// Caches is how many clients have coherent caches.
	Caches int
	// Waiters is how many clients wait in wait queues.
	Waiters int
	// HeldUp is in how many actions of its shell a member's core is held up once, 0 for never.
	HeldUp int
	// Versions is whether members say which cluster versions they speak, and an operator holds
	// the cluster version and lets it go.
	Versions bool
	// Renewing is how clients renew leases.
	Renewing Renewing
	// Users is whether access control is enabled, and some clients are tenants: others than root,
	// who may do what an administrator lets them do.
	Users bool
	// Adapt has members that hang or are cut off noticed by package silence.
	Adapt bool
	// Unsteady is how members stutter and links change.
	Unsteady Unsteady
	// Compare is how members compare their states.
	Compare Compare
	// Oversleep is whether a client that holds a lock or a role is often paused until the lease
	// is over, and gives the lock back then.
	Oversleep bool
}

// Renewing is how clients renew leases.
type Renewing struct {
	// Beside is whether a client that learns of the new TTL of a lease renews it at once
	// in one message with another lease.
	Beside bool
	// Groups is whether keepers renew over streams, in groups if the member has them, and Relays how
	// many relays there are that carry most of these streams.
	Groups bool
	Relays int
}

// hasUsers reports whether access control is enabled in the run of a seed.
func hasUsers(seed uint64) bool { return rand.New(rand.NewPCG(seed, 0xacce55)).IntN(6) == 0 }

// hasGroups reports whether keepers renew over streams in the run of a seed.
func hasGroups(seed uint64) bool { return rand.New(rand.NewPCG(seed, 0x9b4fd)).IntN(2) == 0 }

// relaysOf returns how many relays there are in the run of a seed.
func relaysOf(seed uint64) int {
	if !hasGroups(seed) {
		return 0
	}
	return max(0, rand.New(rand.NewPCG(seed, 0x4e1a7)).IntN(4)-1)
}

// drawScenario draws one for a profile, and fits that to it.
func (w *world) drawScenario(p *Profile) Scenario {
	out := Scenario{Codec: w.chance(3)}
	if w.chance(6) {
		out.Room = uint64(w.between(32, 256))
		p.Delay = w.between(2*Millisecond, 40*Millisecond) // entries wait for the followers
	}
	if w.chance(3) {
		out.Lag = w.between(100*Millisecond, 4*Second)
	}
	if w.chance(6) {
		out.Depose = w.between(4*Second, 12*Second)
		p.Think = w.between(50*Millisecond, 500*Millisecond) // it has something to lose
		p.Timeout = w.between(2*Second, 7*Second)            // and somebody waits for it
	}
	if w.chance(6) {
		out.Sleep = w.between(2*Second, w.end/4)
	}
	if r := w.source(0xcac4e); r.IntN(3) == 0 {
		out.Caches = 1 + r.IntN(4)
	}
	if r := w.source(0x11e5); r.IntN(4) == 0 {
		out.Waiters = 1 + r.IntN(2)
	}
	if r := w.source(0x4eb007); r.IntN(12) == 0 {
		p.Faults, out.Depose, out.Sleep = 0, 0, 0
		out.RestartAll = w.end/2 + Time(r.Int64N(int64(w.end/8)))
	}
	if r := w.source(0x4e1a); r.IntN(8) == 0 && p.Faults > 0 {
		out.Reelect = Time(3+r.IntN(6)) * Second
		p.Think = Time(50+r.IntN(300)) * Millisecond // the log has something of it
		p.Timeout = Time(3+r.IntN(4)) * Second       // and somebody waits for it
	}
	if r := w.source(0x4e1d0); r.IntN(3) == 0 {
		out.HeldUp = 1000 + r.IntN(4000)
	}
	if out.Users = hasUsers(w.opt.Seed); out.Users {
		p.Clients -= len(tenants)
	}
	if r := w.source(0x51e4ce); r.IntN(2) == 0 {
		out.Adapt = true
		out.Unsteady.Pause, out.Unsteady.Far = 300*Millisecond, 50*Millisecond
		if r.IntN(2) == 0 && p.Faults > 0 {
			out.Unsteady.Stutter = Time(1+r.IntN(5)) * Second
		}
		if r.IntN(2) == 0 && p.Faults > 0 {
			out.Unsteady.Swing = Time(2+r.IntN(8)) * Second
		}
	}
	out.Versions = w.source(0x7e25).IntN(4) == 0
	out.Oversleep = w.source(0x51ee9).IntN(3) == 0
	out.Renewing.Groups = hasGroups(w.opt.Seed)
	if out.Renewing.Relays = relaysOf(w.opt.Seed); out.Renewing.Relays > 0 {
		// Groups that are renewed less often than that are over.
		p.CheckpointInterval = max(p.CheckpointInterval, int64(groupTTLs[2])/2)
	}
	out.Renewing.Beside = w.source(0x1b9).IntN(3) == 0
	return out
}
