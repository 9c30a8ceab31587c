package sim

// plantedLeases lists faults in lease features other than the TTL, and in the code of holders.
var plantedLeases = []planted{
	// Lock delay, changed TTLs, changed holders.
	{"lock delay ignored", "L4", []edit{
		{lessorGo, "if x.lockDelay > 0 && x.originalTTL == 0 {", "if false {"},
	}},
	{"a renewal during the lock delay", "L3", []edit{
		{trackerGo, "if k.delayed || token != 0", "if token != 0"},
		{lessorGo, "if !ok || l.table.delayed(slot) {\n\t\treturn 0", "if !ok {\n\t\treturn 0"},
	}},
	{"a name is looked up before the command is in the log", "S1", []edit{
		{
			proposeGo, "\tp.born = r.ticks\n\tswitch {\n",
			"\tp.born = r.ticks\n\tif c, ok := p.Command.(*fsm.Put); ok && c.LeaseName != \"\" {\n" +
				"\t\tput := *c\n\t\tif l, ok := r.lessor.ByName(c.LeaseName); ok {\n" +
				"\t\t\tput.Lease, put.LeaseName = l.ID, \"\"\n\t\t}\n\t\tp.Command = &put\n\t}\n" +
				"\tswitch {\n",
		},
	}},
	{"a put ignores the token of its lease", "T28", []edit{
		{namedGo, "return info.Token == t", "return info.Token > 0"},
	}},
	{"keys that are to stay are deleted", "L6", []edit{
		{leasesGo, "\t\tif ended.Keep {", "\t\tif false {"},
	}},
	{"a change of the TTL keeps the checkpoint", "rule 6", []edit{
		{
			lessorGo, "\tr.stamp++\n\tr.remaining = 0\n\tl.countdown.clear(slot)\n}",
			"\tr.stamp++\n}",
		},
	}},
	{"a longer TTL counts before it is acknowledged", "L1", []edit{
		{
			holderSet, "l.until = min(l.until, s.validUntil(s.now, ttl))",
			"l.until = s.validUntil(s.now, ttl)",
		},
	}},
	{"a shorter TTL binds when it is acknowledged", "L1", []edit{
		{
			holderSet,
			"\t\tl.bound = min(l.bound, ttl)\n\t\tl.until = min(l.until, s.validUntil(s.now, ttl))\n", "",
		},
	}},
	{"a renewal promises the TTL of before", "L1", []edit{
		{renewGo, "l.answerRenewal(n, ttl, nil)", "_ = ttl\n\t\tl.answerRenewal(n, n.TTL, nil)"},
	}},
	{"hand-over keeps the old token", "L5", []edit{
		{changeGo, "\treturn l.succeed(slot, x), nil", "\treturn l.touch(slot), nil"},
	}},
	{"hand-over keeps the request id", "T3", []edit{
		{changeGo, "\tx.requestID = \"\"\n", ""},
	}},
	{"who hands over goes on until it is acknowledged", "L4", []edit{
		{
			namesGo, "\ts.end()\n\tc := &fsm.HandOver{",
			"\tdefer s.end()\n\tc := &fsm.HandOver{",
		},
	}},
	{"resume without the secret", "L4", []edit{
		{
			changeGo, "if !ok || s == (Secret{}) || !s.equal(l.table.extra(slot).orEmpty().secret) {",
			"if !ok || s == (Secret{}) {",
		},
	}},
	{"token not checked on renewal", "T28", []edit{
		{trackerGo, "if k.delayed || token != 0 && token != r.token {", "if k.delayed {"},
	}},
	{"token not checked on revoke", "T28", []edit{
		{
			leasesGo, "if !ok || token != 0 && token != info.Token {",
			"if _ = info; !ok {",
		},
	}},
	{"a renewal finds no lease that was taken over", "T7", []edit{
		{
			renewGo, "case ok && (n.Token == 0 || n.Token == token):",
			"case ok && n.token == 0 && (n.Token == 0 || n.Token == token):",
		},
	}},

	// Conditions on leases.
	{"a condition on a name is looked at when it is admitted", "T4", []edit{
		{
			proposeGo, "\tp.born = r.ticks\n",
			"\tp.born = r.ticks\n" +
				"\tif t, ok := p.Command.(*fsm.Txn); ok && len(t.Compare) == 1 &&\n" +
				"\t\tt.Compare[0].Target == fsm.TargetNameToken {\n" +
				"\t\tinfo, _ := r.lessor.ByName(t.Compare[0].Key)\n" +
				"\t\tif held := uint64(info.Token) == uint64(t.Compare[0].Number); held {\n" +
				"\t\t\tt.Compare[0] = fsm.Compare{}\n\t\t}\n\t}\n",
		},
	}},
	{"a writer looks whether he has the name, and writes then", "T4", []edit{
		{
			namesGo, "op := t.command(&fsm.Txn{Compare: []fsm.Compare{s.holds()}, Then: []fsm.Op{put}})",
			"op := t.command(&fsm.Txn{Compare: []fsm.Compare{s.holds()}})\n" +
				"\tif r, ok := op.Fsm.Value.(*fsm.TxnResult); !ok || !r.Succeeded {\n\t\treturn\n\t}\n" +
				"\top = t.command(&fsm.Txn{Then: []fsm.Op{put}})",
		},
	}},
	{"a name is held during its lock delay", "L4", []edit{
		{
			fsmTxnGo, "\t\tif info.Delayed {\n\t\t\tinfo.Token = 0\n\t\t}\n", "",
		},
	}},

	// Bound leases.
	{"a bound lease outlives its key", "W1", []edit{
		{eventGo, "\t\tif m.lessor.Loose(id) {\n", "\t\tif false {\n"},
	}},
	{"a bound lease takes another key", "S1", []edit{
		{"lease/keys.go", "bound, full := l.table.bound(slot), ", "bound, full := false, "},
	}},

	{"a follower renews groups by itself", "L1", []edit{
		{
			"internal/replica/groups.go", "\t\tg.Renewed[i].ID = id\n",
			"\t\tg.Renewed[i].ID, g.Renewed[i].TTL = id, 2500\n",
		},
	}},
	{"a leave is lost", "L2", []edit{
		{"internal/replica/groups.go", "range r.Leave {", "range r.Leave[:0] {"},
	}},
	{"groups have the IDs of an earlier term", "L1", []edit{
		{
			leaderGo, "\tl.m.lessor.Promote(l.m.now)\n",
			"\tl.m.lessor.Promote(l.m.now)\n\tl.keepers.last = 0\n",
		},
		{"lease/groups.go", "if g <= l.lastGroup {", "if g == 0 {"},
	}},

	{"a grant that is repeated renews nothing", "T3", []edit{
		{leasesGo, "case info.Token <= last && c.Renew:", "case false:"},
	}},

	// Events of leases.
	{"a lease that nobody saw is told of", "W1", []edit{
		{eventGo, "e.Kind == LeaseRevoked && e.Info.Token > s.before", "false"},
	}},
	{"the newest event of a lease is not told", "W1", []edit{
		{
			eventGo, "return l.recent.last(int(l.last - seq)), nil",
			"return l.recent.last(max(0, int(l.last-seq)-1)), nil",
		},
	}},
	{"events of a transaction have the revision before it", "W1", []edit{
		{fsmTxnGo, "m.step.date(m.store.Revision())", "m.step.date(m.store.Revision() - 1)"},
	}},
	{"a new leader tells no events of what ends first", "W1", []edit{
		{
			leasesGo, "\tm.recordEvent(LeaseEvent{Kind: kind, Info: ended.Info})",
			"\tif m.view != nil && m.term != m.view.Term {\n\t\treturn\n\t}\n" +
				"\tm.recordEvent(LeaseEvent{Kind: kind, Info: ended.Info})",
		},
	}},
}
