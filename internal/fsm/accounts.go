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

// Use is how much of the state is a principal's. Only what is granted and written on behalf of a
// principal while access control is enabled is anybody's.
type Use struct {
	Principal string
	// Leases are those that belong to it or, if they belong to nobody, that it was granted.
	Leases int64
	// LeaseKeys are keys on leases that it wrote last.
	LeaseKeys int64
	// Bytes is what its leases take, and what it wrote, with its history: see mvcc.Writer.
	Bytes int64
}

// accounts count the leases of principals. On which account a lease is is replicated, and the rest
// follows from that. What principals wrote is counted by the store.
type accounts struct {
	// caller is who asks for the command that is being applied: the zero value if access control is
	// not enabled, or if a member does.
	caller access.Caller
	// Invariant: byName has those that have leases, no others, and each counts its own.
	byName map[string]*leaseAccount
	// leases has the accounts of leases.
	leases *lease.Lessor
}

// leaseAccount is what the leases of a principal take.
type leaseAccount struct{ leases, bytes int64 }

// writer returns for whom the caller is about to put a pair, nil for nobody.
func (m *Machine) writer() *mvcc.Writer {
	if user := m.meta.accounts.caller.User; user != "" {
		return m.store.Writer(user)
	}
	return nil
}

// granted notes a new lease.
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

// passed notes that a lease has another holder: another process, or another principal.
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

// ended notes that a lease of an account is gone.
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

// Uses yields what principals have, in no order.
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

// Rank adds what principals have. The core calls it, so it makes no list of them.
func (m *Machine) Rank(r *access.Ranking) {
	for u := range m.Uses() {
		r.Add(u.Principal, access.Leases, u.Leases)
		r.Add(u.Principal, access.LeaseKeys, u.LeaseKeys)
		r.Add(u.Principal, access.Bytes, u.Bytes)
	}
}

// use returns how much of the state is a principal's.
func (m *Machine) use(principal string) Use {
	w := m.store.WrittenBy(principal)
	out := Use{Principal: principal, LeaseKeys: w.Keys, Bytes: w.Bytes}
	if u := m.meta.accounts.byName[principal]; u != nil {
		out.Leases, out.Bytes = u.leases, out.Bytes+u.bytes
	}
	return out
}

// account is a record of a snapshot: some leases of a principal. What it wrote is in the records of
// the keys.
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

// accountLeases is how many leases a record of an account has, at most.
const accountLeases = 2048

// accountRecords gives the records of the accounts of leases.
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

// restoreAccount puts the leases of a record on their account. It fails if one is not there, or is
// on an account already.
func (m *Machine) restoreAccount(r account) error {
	a := &m.meta.accounts
	for _, id := range r.Leases {
		info, ok := m.lessor.Lookup(id)
		if !ok || a.leases.Account(id) != "" {
			return fmt.Errorf("%w: an account of %q has lease %016x, which is not there, or on another",
				ErrCorrupt, r.Principal, id)
		}
		a.charge(r.Principal, &info)
	}
	return nil
}
