package sim

import "math/rand/v2"

// Scenario selects features that only some runs use, each chosen independently. If every run used
// them, they would hide more bugs than they reveal.
type Scenario struct {
	// Codec makes members encode and decode every message between them.
	Codec bool
	// Room limits the bytes of uncommitted entries. When the limit is exceeded, a leader rejects
	// commands, including its own expiries (T12). A value of 0 means a limit that no run reaches.
	Room uint64
	// Lag is the mean time for which a client stops reading a watch, which blocks the stream. If it
	// is 0, no client stops reading.
	Lag Time
	// Depose is the mean time between additional faults that depose a leader (injector.depose); 0
	// disables them.
	Depose Time
	// Reelect is the mean time between faults that depose and re-elect a leader (injector.reelect);
	// 0 disables them.
	Reelect Time
	// Sleep is how long all machines are suspended just before the faults end, as if they shared
	// one host (T10); 0 disables this.
	Sleep Time
	// RestartAll is when all members crash and restart, in a run without other faults. A value of 0
	// means never.
	RestartAll Time
	// StaleLeader configures replaced leaders that have not detected their replacement, and clients
	// that send requests to them.
	StaleLeader StaleLeader
	// Caches is the number of clients with coherent caches.
	Caches int
	// Waiters is the number of clients that use wait queues.
	Waiters int
	// HeldUp delays one in HeldUp actions of a core's shell; 0 delays none.
	HeldUp int
	// Versions makes members announce their cluster versions. An operator holds and releases the
	// cluster version.
	Versions bool
	// Renewing configures how clients renew leases.
	Renewing Renewing
	// Users enables access control. Some clients are then tenants with permissions granted by an
	// administrator.
	Users bool
	// Adapt makes members use package silence to detect hung and disconnected members.
	Adapt bool
	// Unsteady configures brief pauses of members and latency changes of links.
	Unsteady Unsteady
	// Compare configures how members compare their states.
	Compare Compare
	// Oversleep often pauses a client that holds a lock or role until its lease has ended. The
	// client then releases the lock or role.
	Oversleep bool
}

// Renewing configures how clients renew leases.
type Renewing struct {
	// Beside sometimes makes a client that has changed a lease's TTL renew the lease immediately,
	// together with another lease in one message.
	Beside bool
	// Groups makes keepers renew over streams, and in groups if the member supports them. Relays is
	// the number of relays, which carry most of these streams.
	Groups bool
	Relays int
}

// hasUsers reports whether a seed's run has access control.
func hasUsers(seed uint64) bool { return rand.New(rand.NewPCG(seed, 0xacce55)).IntN(6) == 0 }

// hasGroups reports whether keepers renew over streams in a seed's run.
func hasGroups(seed uint64) bool { return rand.New(rand.NewPCG(seed, 0x9b4fd)).IntN(2) == 0 }

// relaysOf returns the number of relays in a seed's run.
func relaysOf(seed uint64) int {
	if !hasGroups(seed) {
		return 0
	}
	return max(0, rand.New(rand.NewPCG(seed, 0x4e1a7)).IntN(4)-1)
}

// drawScenario draws a scenario and adapts the profile to it.
func (w *world) drawScenario(p *Profile) Scenario {
	out := Scenario{Codec: w.chance(3)}
	if w.chance(6) {
		out.Room = uint64(w.between(32, 256))
		p.Delay = w.between(2*Millisecond, 40*Millisecond) // so that entries wait for the followers
	}
	if w.chance(3) {
		out.Lag = w.between(100*Millisecond, 4*Second)
	}
	if w.chance(6) {
		out.Depose = w.between(4*Second, 12*Second)
		p.Think = w.between(50*Millisecond, 500*Millisecond) // so that entries are in flight
		p.Timeout = w.between(2*Second, 7*Second)            // so that a client waits long enough
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
		p.Think = Time(50+r.IntN(300)) * Millisecond // so that the log contains enough operations
		p.Timeout = Time(3+r.IntN(4)) * Second       // so that a client waits long enough
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
		// A group that is not renewed in time ends.
		p.CheckpointInterval = max(p.CheckpointInterval, int64(groupTTLs[2])/2)
	}
	out.Renewing.Beside = w.source(0x1b9).IntN(3) == 0
	return out
}
