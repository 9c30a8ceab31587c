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

// Use is how much of the state is a principal's.
type Use struct {
	Principal string
	// Leases are those that belong to it or, if they belong to nobody, that it was granted.
	Leases int64
	// LeaseKeys are keys on leases that it wrote last.
	LeaseKeys int64
	// Bytes is what its leases take, and the pairs that it wrote last.
	Bytes int64
}

// accounts say how much of the state is whose. Only what is granted and written on behalf of
// somebody while access control is enabled is anybody's. Which account a lease and a key is on is
// replicated, and the rest follows from that.
type accounts struct {
	// caller is who asks for the command that is being applied: the zero value if access control is
	// not enabled, or if a member does.
	caller access.Caller
	// Invariant: byName has the accounts of leases and keys, no others, and each counts its own. The
	// account of a key is that of the writer of its pair.
	byName map[string]*Use
	// leases has the accounts of leases.
	leases *lease.Lessor
}

// of returns the account of a principal, which is about to have something.
func (a *accounts) of(principal string) *Use {
	u := a.byName[principal]
	if u == nil {
		if a.byName == nil {
			a.byName = make(map[string]*Use)
		}
		u = &Use{Principal: principal}
		a.byName[principal] = u
	}
	return u
}

// leave forgets an account that has nothing any more. Each lease and each key takes bytes.
func (a *accounts) leave(u *Use) {
	if u.Bytes == 0 {
		delete(a.byName, u.Principal)
	}
}

func (u *Use) count(kv *mvcc.KeyValue, sign int64) {
	u.Bytes += sign * mvcc.PutSize(kv.Key, kv.Value)
	if kv.Lease != 0 {
		u.LeaseKeys += sign
	}
}

// writer returns for whom the caller is about to put a pair, nil for nobody.
func (a *accounts) writer() *string {
	if a.caller.User == "" {
		return nil
	}
	return &a.of(a.caller.User).Principal
}

// wrote notes that a pair was put in the place of prev, nil if there was none.
func (a *accounts) wrote(prev, kv *mvcc.KeyValue) {
	if kv.Writer() != nil {
		a.of(*kv.Writer()).count(kv, 1)
	}
	if prev != nil {
		a.lost(prev)
	}
}

// lost notes that a pair is gone.
func (a *accounts) lost(kv *mvcc.KeyValue) {
	if kv.Writer() != nil {
		u := a.byName[*kv.Writer()]
		u.count(kv, -1)
		a.leave(u)
	}
}

// deleted notes that pairs are gone.
func (a *accounts) deleted(kvs []*mvcc.KeyValue) {
	for _, kv := range kvs {
		a.lost(kv)
	}
}

// freed notes that a pair stays, and is on no lease any more.
func (a *accounts) freed(kv *mvcc.KeyValue) {
	if kv.Writer() != nil {
		a.byName[*kv.Writer()].LeaseKeys--
	}
}

// granted notes a new lease.
func (a *accounts) granted(l *lease.Info) {
	if who := cmp.Or(l.Principal, a.caller.User); who != "" {
		a.charge(who, l)
	}
}

func (a *accounts) charge(principal string, l *lease.Info) {
	u := a.of(principal)
	u.Leases++
	u.Bytes += l.Bytes()
	a.leases.Charge(l.ID, u.Principal)
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
	if u := a.byName[account]; u != nil {
		u.Leases--
		u.Bytes -= l.Bytes()
		a.leave(u)
	}
}

// Uses returns how much of the state is whose, in no order.
func (m *Machine) Uses() []Use {
	out := make([]Use, 0, len(m.meta.accounts.byName))
	for _, u := range m.meta.accounts.byName {
		out = append(out, *u)
	}
	return out
}

// Rank adds how much of the state is whose.
func (m *Machine) Rank(r *access.Ranking) {
	for _, u := range m.meta.accounts.byName {
		r.Add(u.Principal, access.Leases, u.Leases)
		r.Add(u.Principal, access.LeaseKeys, u.LeaseKeys)
		r.Add(u.Principal, access.Bytes, u.Bytes)
	}
}

// use returns how much of the state is a principal's.
func (m *Machine) use(principal string) Use {
	if u := m.meta.accounts.byName[principal]; u != nil {
		return *u
	}
	return Use{Principal: principal}
}

// account is a record of a snapshot: some leases, or some keys, of a principal.
type account struct {
	Principal string
	Leases    []lease.ID
	Keys      []string
}

func appendAccount(b []byte, r account) []byte {
	b = encoding.AppendBytes(b, r.Principal)
	b = encoding.AppendList(b, r.Leases, appendID)
	return encoding.AppendList(b, r.Keys, encoding.AppendBytes)
}

func (d *decoder) account() account {
	r := account{
		Principal: d.Text(), Leases: encoding.List(&d.Decoder, d.id),
		Keys: encoding.List(&d.Decoder, d.Text),
	}
	if r.Principal == "" || len(r.Leases)+len(r.Keys) == 0 {
		d.Fail("an account")
	}
	return r
}

// accountBytes is how large a record of an account gets, if it has several keys.
const accountBytes = 16 << 10

// eachAccount gives the records to write, none if there are no accounts.
func (im *Image) eachAccount(write func(account)) {
	if im.accounts {
		accountRecords(im.leases, im.View.KV.Ascend("\x00", "\x00", 0), write)
	}
}

// accountRecords gives the records of these leases and pairs.
func accountRecords(leases lease.View, kvs iter.Seq[*mvcc.KeyValue], write func(account)) {
	var r account
	size := 0
	next := func(principal string, n int) {
		if principal != r.Principal || size+n > accountBytes {
			if r.Principal != "" {
				write(r)
			}
			r, size = account{Principal: principal}, 0
		}
		size += n
	}
	for id, principal := range leases.Accounts() {
		next(principal, 8)
		r.Leases = append(r.Leases, id)
	}
	for kv := range kvs {
		if kv.Writer() != nil {
			next(*kv.Writer(), len(kv.Key)+1)
			r.Keys = append(r.Keys, kv.Key)
		}
	}
	if r.Principal != "" {
		write(r)
	}
}

// restoreAccount puts the leases and keys of a record on their account. It fails if one is not
// there, or is on an account already.
func (m *Machine) restoreAccount(r account) error {
	a := &m.meta.accounts
	for _, id := range r.Leases {
		info, ok := m.lessor.Lookup(id)
		if !ok || a.leases.Account(id) != "" {
			return badAccount(r, "lease %016x", id)
		}
		a.charge(r.Principal, &info)
	}
	for _, key := range r.Keys {
		kv := m.store.Get(key)
		if kv == nil || kv.Writer() != nil {
			return badAccount(r, "key %q", key)
		}
		m.store.SetWriter(key, &a.of(r.Principal).Principal)
		a.wrote(nil, kv)
	}
	return nil
}

func badAccount(r account, format string, arg any) error {
	return fmt.Errorf("%w: an account of %q has "+format+", which is not there, or on another",
		ErrCorrupt, r.Principal, arg)
}
