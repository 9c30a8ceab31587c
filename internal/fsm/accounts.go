package fsm

import (
	"cmp"
	"fmt"
	"iter"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// Use is the part of the state that is charged to a principal. Only grants and writes made while
// access control was enabled are charged.
type Use struct {
	Principal string
	// Leases counts the leases that belong to the principal, plus leases without a principal that
	// were granted to it.
	Leases int64
	// LeaseKeys counts the attached keys whose last writer was the principal.
	LeaseKeys int64
	// Bytes is the total size of its leases and of the versions that it wrote, including history:
	// see mvcc.Writer.
	Bytes int64
}

// accounts tracks the leases of each principal. The account of each lease is replicated, and the
// rest is derived from it. The store tracks the versions that each principal wrote.
type accounts struct {
	// caller issued the command that is being applied. It is the zero value if access control is
	// disabled, or if a member issued the command.
	caller access.Caller
	// Invariant: byName contains exactly the principals that have leases, with correct counts.
	byName map[string]*leaseAccount
	// leases stores the account of each lease.
	leases *lease.Lessor
}

// leaseAccount is the number and total size of a principal's leases.
type leaseAccount struct{ leases, bytes int64 }

// writer returns the principal that the caller's puts are charged to, or nil if there is none.
func (m *Machine) writer() *mvcc.Writer {
	if user := m.meta.accounts.caller.User; user != "" {
		return m.store.Writer(user)
	}
	return nil
}

// granted charges a new lease to its principal.
func (a *accounts) granted(l *lease.Info) {
	if who := cmp.Or(l.Principal, a.caller.User); who != "" {
		a.charge(who, l)
	}
}

func (a *accounts) charge(principal string, l *lease.Info) {
	u := a.byName[principal]
	if u == nil {
		if a.byName == nil {
			a.byName = make(map[string]*leaseAccount)
		}
		u = new(leaseAccount)
		a.byName[principal] = u
	}
	u.leases++
	u.bytes += l.Bytes()
	a.leases.Charge(l.ID, principal)
}

// passed updates the accounts after a lease has been transferred to another process or principal.
func (a *accounts) passed(before, after *lease.Info) {
	was := a.leases.Account(before.ID)
	who := was
	if after.Principal != before.Principal {
		who = after.Principal
	}
	a.ended(before, was)
	if who != "" {
		a.charge(who, after)
	}
}

// ended removes a lease that has ended from its account.
func (a *accounts) ended(l *lease.Info, account string) {
	u := a.byName[account]
	if u == nil {
		return
	}
	u.leases--
	u.bytes -= l.Bytes()
	if u.leases == 0 {
		delete(a.byName, account)
	}
}

// Uses yields the usage of every principal, in no particular order.
func (m *Machine) Uses() iter.Seq[Use] {
	return func(yield func(Use) bool) {
		for name := range m.meta.accounts.byName {
			if !yield(m.use(name)) {
				return
			}
		}
		for w := range m.store.Writers() {
			if m.meta.accounts.byName[w.Name] == nil && !yield(m.use(w.Name)) {
				return
			}
		}
	}
}

// Rank adds the usage of every principal to r. It does not build a list, to avoid allocating on the
// core's goroutine.
func (m *Machine) Rank(r *access.Ranking) {
	for u := range m.Uses() {
		r.Add(u.Principal, access.Leases, u.Leases)
		r.Add(u.Principal, access.LeaseKeys, u.LeaseKeys)
		r.Add(u.Principal, access.Bytes, u.Bytes)
	}
}

// use returns the usage of one principal.
func (m *Machine) use(principal string) Use {
	w := m.store.WrittenBy(principal)
	out := Use{Principal: principal, LeaseKeys: w.Keys, Bytes: w.Bytes}
	if u := m.meta.accounts.byName[principal]; u != nil {
		out.Leases, out.Bytes = u.leases, out.Bytes+u.bytes
	}
	return out
}

// account is a snapshot record that lists some of a principal's leases. A key's principal is in the
// key's own record.
type account struct {
	Principal string
	Leases    []lease.ID
}

func appendAccount(b []byte, r account) []byte {
	return encoding.AppendList(encoding.AppendBytes(b, r.Principal), r.Leases, appendID)
}

func (d *decoder) account() account {
	r := account{Principal: d.Text(), Leases: encoding.List(&d.Decoder, d.id)}
	if r.Principal == "" || len(r.Leases) == 0 {
		d.Fail("an account")
	}
	return r
}

// accountLeases is the maximum number of leases in one account record.
const accountLeases = 2048

// accountRecords writes the account records of leases.
func accountRecords(leases lease.View, write func(account)) {
	var r account
	for id, principal := range leases.Accounts() {
		if principal != r.Principal || len(r.Leases) == accountLeases {
			if r.Principal != "" {
				write(r)
			}
			r = account{Principal: principal}
		}
		r.Leases = append(r.Leases, id)
	}
	if r.Principal != "" {
		write(r)
	}
}

// restoreAccount charges the leases in a record to their account. It fails if a lease does not
// exist or already has an account.
func (m *Machine) restoreAccount(r account) error {
	a := &m.meta.accounts
	for _, id := range r.Leases {
		info, ok := m.lessor.Lookup(id)
		if !ok || a.leases.Account(id) != "" {
			return fmt.Errorf("%w: the account of %q names lease %016x, which does not exist "+
				"or already has an account", ErrCorrupt, r.Principal, id)
		}
		a.charge(r.Principal, &info)
	}
	return nil
}
