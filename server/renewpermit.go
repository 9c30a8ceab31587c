package server

import (
	"slices"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
)

// permit rejects renewals by callers without permission to hold the leases, according to the newest
// users, roles and leases at this member. This is cheap, because the core has direct access to the
// leases.
func (c *core) permit(m *shell.Mail) {
	by := c.view.Load().Access
	if !by.Enabled() || len(m.Renewals) == 0 {
		return
	}
	l := c.replica.Machine().Lessor()
	m.Renewals = slices.DeleteFunc(m.Renewals, func(n replica.Renewal) bool {
		to := n.Owner.(api.Renewed)
		who := to.Holder()
		if who == nil {
			return false
		}
		decided, err := fsm.Authorizer{State: by, Caller: *who}.MayRenew(l, n.ID)
		if !decided {
			err = api.ErrUndecided
		}
		if err != nil {
			to.Renewed(n.ID, 0, err)
		}
		return err != nil
	})
}
