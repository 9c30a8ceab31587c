package replica

import "cmp"

// CheckInvariants walks the state machine and, on a leader, the directory of caches, and returns
// the first inconsistency. It is slow, and meant for the simulator.
func (r *Replica) CheckInvariants() error {
	err := r.machine.CheckInvariants()
	if r.lead == nil || r.lead.gate.caches == nil {
		return err
	}
	return cmp.Or(err, r.lead.gate.caches.CheckInvariants())
}
