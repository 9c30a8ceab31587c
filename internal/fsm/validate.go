package fsm

import "leasehold.dev/lease"

// validate says why a transaction cannot be carried out, each operation after
// those before it. It changes nothing.
func (m *Machine) validate(p *plan) error {
	attaching, keeps := p.puts()
	v := validation{m: m, several: attaching > 1}
	if keeps {
		v.puts = make(map[string]struct{})
	}
	if err := v.plan(p); err != nil {
		return err
	}
	return m.afford(v.cost)
}

// puts returns how many puts there are on leases, and whether any keeps the value of its key.
func (p *plan) puts() (attaching int, keeps bool) {
	for i := range p.ops {
		if put := p.ops[i].Put; put != nil {
			keeps = keeps || put.IgnoreValue
			if put.attaches() {
				attaching++
			}
		}
	}
	for i := range p.nested {
		n, k := p.nested[i].puts()
		attaching, keeps = attaching+n, keeps || k
	}
	return attaching, keeps
}

// validation is what the operations that were checked will have done to leases, as
// far as it matters for those that follow. Its maps are nil as long as there is
// nothing to remember.
type validation struct {
	m *Machine
	// several says that more than one put is on a lease, so that they may be on the same.
	several bool
	// puts has the keys that will have been put, nil if no put keeps its value.
	puts map[string]struct{}
	// leases has those that will have been granted, ended, or given more keys.
	leases map[lease.ID]*leaseAfter
	// repeated says which lease a repeated Grant will have returned for the ID that
	// it asked for.
	repeated aliases
	// names has those that will have been taken, or, with nil, freed.
	names map[string]*lease.Terms
	// held is how many ranges will have been held in addition, and owned by whom.
	held  int
	owned map[string]int
	// cost is that of the operations so far.
	cost Cost
	// replaced has bound leases: whether each ends since its key goes to a new lease, and takes
	// no other. It is used if there are limits.
	replaced map[lease.ID]bool
}

// leaseAfter is what will have become of a lease.
type leaseAfter struct {
	// terms are those of a new lease, nil for one that there was.
	terms *lease.Terms
	ended bool
	// keys are those that will have been put on it. Together with those that are
	// attached now they are more than it will ever have at one time: what is
	// deleted in between makes no room.
	keys map[string]struct{}
}

func (v *validation) plan(p *plan) error {
	nested := p.nested
	for i := range p.ops {
		var err error
		switch op := &p.ops[i]; {
		case op.Put != nil:
			err = v.put(op.Put)
		case op.Range != nil:
			err = v.m.checkRevision(op.Range.Options.Revision)
		case op.Txn != nil:
			err = v.plan(&nested[0])
			nested = nested[1:]
		case op.Grant != nil:
			err = v.grant(op.Grant)
		case op.Revoke != nil:
			err = v.revoke(op.Revoke)
		case op.Touch != nil:
			err = v.touch(op.Touch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// attaches reports whether a put is on a lease.
func (c *Put) attaches() bool { return c.Lease != 0 || c.LeaseName != "" }

// after returns what is known of a lease, to be added to.
func (v *validation) after(id lease.ID) *leaseAfter {
	l := v.leases[id]
	if l == nil {
		l = &leaseAfter{}
		v.note(id, l)
	}
	return l
}

func (v *validation) note(id lease.ID, l *leaseAfter) {
	if v.leases == nil {
		v.leases = make(map[lease.ID]*leaseAfter)
	}
	v.leases[id] = l
}

func (v *validation) put(c *Put) error {
	limit := v.m.cfg.Lease.MaxKeys
	if c.MaxKeys > 0 && (limit <= 0 || c.MaxKeys < limit) {
		limit = c.MaxKeys
	}
	if (c.IgnoreValue || c.IgnoreLease) && v.m.store.Get(c.Key) == nil {
		return ErrKeyNotFound
	}
	id := lease.ID(0)
	if c.attaches() {
		var err error
		if id, err = v.meant(c.Lease, c.LeaseName); err != nil {
			return err
		}
	}
	v.cost.add(v.m.putCost(c, id, v.again(c.Key)))
	if id == 0 {
		return nil
	}
	l := v.leases[id]
	if l != nil && (l.ended || l.terms != nil && c.LeaseToken != 0) {
		return lease.ErrNotFound
	}
	count, bound := 0, false
	if l != nil && l.terms != nil {
		bound = l.terms.Bound
		v.replace(v.m.lessor.LeaseOf(c.Key), true)
	} else {
		v.replace(id, false)
		info, ok := v.m.lessor.Lookup(id)
		if !ok || info.Delayed || c.LeaseToken != 0 && c.LeaseToken != info.Token {
			return lease.ErrNotFound
		}
		if v.m.lessor.LeaseOf(c.Key) == id {
			return nil
		}
		count, bound = v.m.lessor.KeyCount(id), info.Bound
	}
	switch count += v.attach(id, c.Key); {
	case bound && count > 1:
		return lease.ErrBound
	case limit > 0 && count > limit:
		return &lease.KeyLimitError{ID: id, Limit: limit}
	}
	return nil
}

// again notes a key that will have been put, and reports whether it was before in the transaction.
func (v *validation) again(key string) bool {
	if v.puts == nil {
		return false
	}
	_, again := v.puts[key]
	v.puts[key] = struct{}{}
	return again
}

// replace notes of a lease that its key goes to a new lease, or that it takes a key. If it is bound
// it ends in the first case, unless the second one comes before or after, and makes room for one
// that is granted: a key that is put with a TTL once more has one lease as before.
func (v *validation) replace(id lease.ID, ends bool) {
	if id == 0 || !v.m.meta.access.Limited() {
		return
	}
	info, _ := v.m.lessor.Lookup(id)
	ended, known := v.replaced[id]
	if !info.Bound || known && ends {
		return
	}
	if v.replaced == nil {
		v.replaced = make(map[lease.ID]bool)
	}
	v.replaced[id] = ends
	switch on := v.m.lessor.Account(id); {
	case on != "" && ends:
		v.cost.use(Use{Principal: on, Leases: -1, Bytes: -info.Bytes()})
	case on != "" && ended:
		v.cost.use(Use{Principal: on, Leases: 1, Bytes: info.Bytes()})
	}
}

// attach notes a key that will have been put on a lease, and returns how many there are.
func (v *validation) attach(id lease.ID, key string) int {
	if !v.several {
		return 1
	}
	l := v.after(id)
	if l.keys == nil {
		l.keys = make(map[string]struct{})
	}
	l.keys[key] = struct{}{}
	return len(l.keys)
}

// grant foresees what lease.Lessor.Grant will say. A lease that the transaction
// itself granted is never a repeated request.
func (v *validation) grant(c *Grant) error {
	t := &c.Terms
	if err := CheckHolds(c.Holds, t.TTL, MaxCacheTTL); err != nil {
		return err
	}
	if err := v.m.lessor.CheckTerms(t); err != nil {
		return err
	}
	l := v.leases[t.ID]
	if l == nil || l.terms == nil && !l.ended {
		if held, ok := v.m.lessor.Lookup(t.ID); ok {
			if t.Repeats(&held) {
				return nil
			}
			return lease.ErrExists
		}
	} else if !l.ended {
		return lease.ErrExists
	}
	actual, err := v.named(t)
	if err != nil {
		return err
	}
	if actual != 0 { // repeated, under another ID
		v.repeated.set(t.ID, actual)
		return nil
	}
	// What a revocation before this in the transaction gives up makes no room.
	if err := v.holds(t.Owner, len(c.Holds)); err != nil {
		return err
	}
	v.cost.add(v.m.grantCost(c))
	v.repeated.set(t.ID, t.ID)
	v.note(t.ID, &leaseAfter{terms: t})
	v.name(t.Name, t)
	return nil
}

// holds foresees whether there is room for what a lease of an owner will hold.
func (v *validation) holds(owner string, ranges int) error {
	if ranges == 0 {
		return nil
	}
	if v.owned == nil {
		v.owned = make(map[string]int)
	}
	v.owned[owner] += ranges
	v.held += ranges
	return v.m.holds.check(owner, v.owned[owner], v.held)
}

// named says whether a name is free to be granted, or which lease the request
// already got it for.
func (v *validation) named(t *lease.Terms) (lease.ID, error) {
	holder, ok := v.m.lessor.ByName(t.Name)
	if terms, known := v.names[t.Name]; known {
		if terms != nil {
			return 0, &lease.NameError{Name: t.Name, Holder: lease.Info{Terms: *terms}}
		}
		return 0, nil
	}
	if !ok {
		return 0, nil
	}
	if t.Repeats(&holder) {
		return holder.ID, nil
	}
	return 0, &lease.NameError{Name: t.Name, Holder: holder}
}

// name notes which lease will have a name, nil for none.
func (v *validation) name(name string, t *lease.Terms) {
	if name == "" {
		return
	}
	if v.names == nil {
		v.names = make(map[string]*lease.Terms)
	}
	v.names[name] = t
}

func (v *validation) revoke(c *Revoke) error {
	id, err := v.meant(c.ID, c.Name)
	if err != nil {
		return err
	}
	l := v.after(id)
	switch {
	case l.ended || l.terms != nil && c.Token != 0:
		return lease.ErrNotFound
	case l.terms != nil:
		v.name(l.terms.Name, nil)
	default:
		if err := v.m.checkRevoke(id, c.Token); err != nil {
			return err
		}
		info, _ := v.m.lessor.Lookup(id)
		v.name(info.Name, nil)
	}
	l.ended = true
	return nil
}

func (v *validation) touch(c *Touch) error {
	id, err := v.meant(c.ID, c.Name)
	if err != nil {
		return err
	}
	l := v.after(id)
	if l.ended || l.terms != nil && c.Token != 0 {
		return lease.ErrNotFound
	}
	if l.terms == nil {
		info, ok := v.m.lessor.Lookup(id)
		if !ok || info.Delayed || c.Token != 0 && c.Token != info.Token {
			return lease.ErrNotFound
		}
	}
	return nil
}

// aliases are the leases that operations mean by IDs, where that is another than
// the one of the ID.
type aliases map[lease.ID]lease.ID

// actual returns the lease that is meant by an ID.
func (a aliases) actual(id lease.ID) lease.ID {
	if actual, ok := a[id]; ok {
		return actual
	}
	return id
}

// set notes which lease is meant by an ID from now on.
func (a *aliases) set(id, actual lease.ID) {
	switch {
	case id == actual:
		delete(*a, id)
	case *a == nil:
		*a = aliases{id: actual}
	default:
		(*a)[id] = actual
	}
}
