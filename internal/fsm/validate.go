package fsm

import "leasehold.dev/lease"

// validate returns an error if a transaction cannot be executed. It checks each operation against
// the state that the preceding operations will produce, and changes nothing.
func (m *Machine) validate(p *plan) error {
	attaching, keeps := p.puts()
	v := validation{m: m, several: attaching > 1}
	if keeps {
		v.puts = make(map[string]struct{})
	}
	if err := v.plan(p); err != nil {
		return err
	}
	return m.checkCost(v.cost)
}

// puts returns the number of puts on leases, and whether any put keeps the value of its key.
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

// validation tracks the effects of the operations checked so far, to the extent that later
// operations depend on them. Its maps are nil until they are needed.
type validation struct {
	m *Machine
	// several is true if more than one put attaches its key to a lease. Two of them might use the
	// same lease.
	several bool
	// puts contains the keys put so far. It is nil if no put keeps its value.
	puts map[string]struct{}
	// leases contains the leases that have been granted, ended, or given keys so far.
	leases map[lease.ID]*leaseAfter
	// repeated maps the ID in a repeated Grant to the lease that the Grant will return.
	repeated aliases
	// names maps each name granted so far to its terms, and each name freed so far to nil.
	names map[string]*lease.Terms
	// held is the number of additional ranges that will be held, and owned breaks it down by owner.
	held  int
	owned map[string]int
	// cost is the cost of the operations so far.
	cost Cost
	// replaced contains the bound leases that lose their key to a new lease. The value is true if
	// the lease will end, because it is not given another key. The map is used only if there are
	// limits.
	replaced map[lease.ID]bool
}

// leaseAfter is the state of a lease after the operations so far.
type leaseAfter struct {
	// terms are the terms of a new lease. They are nil for an existing lease.
	terms *lease.Terms
	ended bool
	// keys contains the keys put on the lease so far. Together with the lease's current keys, they
	// bound the number of keys that it can have at any point in the transaction. Deletions in
	// between do not lower the bound.
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

// attaches reports whether a put attaches its key to a lease.
func (c *Put) attaches() bool { return c.Lease != 0 || c.LeaseName != "" }

// after returns the record of a lease, so that the caller can update it.
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
		if id, err = v.resolve(c.Lease, c.LeaseName); err != nil {
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

// again records that a key will be put, and reports whether an earlier operation already puts it.
func (v *validation) again(key string) bool {
	if v.puts == nil {
		return false
	}
	_, again := v.puts[key]
	v.puts[key] = struct{}{}
	return again
}

// replace records that a bound lease loses its key to a new lease (if ends is true) or gets a key
// (if ends is false). A lease that loses its key and gets no other will end, so it no longer counts
// toward the limit. That way, putting a key again with a TTL does not need room for a second lease.
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

// attach records that a key will be attached to a lease, and returns how many keys have been
// recorded for that lease.
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

// grant predicts the result of lease.Lessor.Grant. It never treats a lease granted by the same
// transaction as a repeated request.
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
	if actual != 0 { // a repeated request with a different ID
		v.repeated.set(t.ID, actual)
		return nil
	}
	// An earlier revocation in the same transaction does not free any ranges.
	if err := v.holds(t.Owner, len(c.Holds)); err != nil {
		return err
	}
	v.cost.add(v.m.grantCost(c))
	v.repeated.set(t.ID, t.ID)
	v.note(t.ID, &leaseAfter{terms: t})
	v.name(t.Name, t)
	return nil
}

// holds checks whether an owner's lease can hold this many additional ranges.
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

// named returns 0 if a name is free. If the same request already created a lease with that name, it
// returns that lease.
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

// name records which lease will hold a name. nil means none.
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
	id, err := v.resolve(c.ID, c.Name)
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
	id, err := v.resolve(c.ID, c.Name)
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

// aliases maps IDs in operations to the leases that they actually refer to, if those leases have
// different IDs.
type aliases map[lease.ID]lease.ID

// actual returns the lease that an ID refers to.
func (a aliases) actual(id lease.ID) lease.ID {
	if actual, ok := a[id]; ok {
		return actual
	}
	return id
}

// set records which lease an ID refers to from now on.
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
