package replica

import "cmp"

// CheckInvariants checks the state machine and, on a leader, the directory of caches. It returns
// the first inconsistency found. It is slow and intended for the simulator.
func (r *Replica) CheckInvariants() error {
	err := r.machine.CheckInvariants()
	if r.lead == nil || r.lead.gate.caches == nil {
		return err
	}
	return cmp.Or(err, r.lead.gate.caches.CheckInvariants())
}
