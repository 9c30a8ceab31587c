package sim

const (
	lessorGo     = "lease/lessor.go"
	grantGo      = "lease/grant.go"
	trackerGo    = "lease/expiry.go"
	promotionGo  = "lease/promotion.go"
	machineGo    = "internal/fsm/machine.go"
	leasesGo     = "internal/fsm/leases.go"
	fsmTxnGo     = "internal/fsm/txn.go"
	eventGo      = "internal/fsm/event.go"
	silenceGo    = "internal/fsm/silence.go"
	checkpointGo = "lease/checkpoint.go"
	namedGo      = "internal/fsm/resolve.go"
	fsmSnapGo    = "internal/fsm/snapshot.go"
	fsmRecordGo  = "internal/fsm/codec_record.go"
	fsmOnceGo    = "internal/fsm/dedup.go"
	readGo       = "internal/replica/read.go"
	confirmGo    = "internal/replica/confirm.go"
	renewGo      = "internal/replica/renew.go"
	renewalsGo   = "internal/replica/renewals.go"
	expireGo     = "internal/replica/expire.go"
	proposeGo    = "internal/replica/propose.go"
	forwardGo    = "internal/replica/forward.go"
	relayGo      = "internal/replica/relay.go"
	asksGo       = "internal/replica/asks.go"
	remotesGo    = "internal/replica/remotes.go"
	leaderGo     = "internal/replica/leader.go"
	driverGo     = "internal/replica/driver.go"
	inflightGo   = "internal/replica/inflight.go"
	takeGo       = "internal/replica/take.go"
	applyGo      = "internal/replica/apply.go"
	installGo    = "internal/replica/install.go"
	replicaGo    = "internal/replica/replica.go"
	watcherGo    = "internal/watch/watcher.go"
	hubGo        = "internal/watch/hub.go"
	mvccEvents   = "internal/mvcc/events.go"
	holderSet    = "internal/holder/set.go"
	holderRenew  = "internal/holder/renew.go"
	holderAgent  = "internal/holder/agent.go"
	changeGo     = "lease/change.go"
	sessionGo    = "test/sim/session.go"
	namesGo      = "test/sim/names.go"
	locksGo      = "test/sim/locks.go"
	saverGo      = "internal/shell/saver.go"
	storageGo    = "internal/storage/writer.go"

	simWatcherGo = "test/sim/watcher.go"
)

// oldLeadersExpiry removes the two safeguards that precede the term check: that a deposed leader
// drops its own commands, and that no leader accepts another leader's commands (T1).
var oldLeadersExpiry = []edit{
	{
		relayGo, "if p.internal == nil && p.origin.Member == 0 {", "if p.origin.Member == 0 {",
	},
	{
		leaderGo,
		"\tif fsm.Internal(p.Command) {\n\t\tl.refuse(p, ErrInternal)",
		"\tif false {\n\t\tl.refuse(p, ErrInternal)",
	},
}

// soonestRound lets requests join the confirm round in progress.
var soonestRound = edit{
	confirmGo, "// begin begins a round if",
	"func (r *rounds) soonest() *round {\n\tif r.current.id != 0 {\n" +
		"\t\treturn &r.current\n\t}\n\treturn &r.next\n}\n\n// begin begins a round if",
}

// plantedCore lists faults in the core: clocks, expiry, the store, and watches.
var plantedCore = []planted{
	// Rules 1 and 2: clocks.
	{"holder counts from receipt", "T2", []edit{
		{holderRenew, "\tl.TTL = ttl\n\ts.confirm(l, sent)", "\tl.TTL = ttl\n\ts.confirm(l, s.now)"},
	}},
	{"member's clock stops in suspend", "T10", []edit{
		{shellClockGo, "now = r.Boot - c.start.Boot", "now = r.Mono - c.start.Mono"},
	}},
	{"a lease expires two percent early", "L1", []edit{
		{"lease/types.go", "return t + Instant(ttl) + 1", "return t + Instant(ttl) - Instant(ttl)/50"},
	}},

	// Rule 4: confirm rounds.
	{"renewal released without a confirm round", "rule 4", []edit{
		{
			renewGo, "renewed.Token\n\t\tl.rounds.next.renewals = append(l.rounds.next.renewals, n)",
			"renewed.Token\n\t\tl.answerRenewal(n, n.TTL, nil)",
		},
	}},
	{"confirm round from before the promise", "rule 4", []edit{
		{
			renewGo, "renewed.Token\n\t\tl.rounds.next.renewals = append(l.rounds.next.renewals, n)",
			"renewed.Token\n\t\tto := l.rounds.soonest()\n\t\tto.renewals = append(to.renewals, n)",
		},
		soonestRound,
	}},
	{"confirm round from before the read was asked", "rule 4", []edit{
		{
			remotesGo,
			"\t\tl.rounds.next.reads = append(l.rounds.next.reads, q)",
			"\t\tto := l.rounds.soonest()\n\t\tto.reads = append(to.reads, q)",
		},
		soonestRound,
	}},
	{"confirm rounds by the leader's clock", "rule 4", []edit{
		{driverGo, "raft.ReadOnlySafe", "raft.ReadOnlyLeaseBased"},
	}},
	{"not found is said without a confirm round", "T7", []edit{
		{
			renewGo, "can give that answer (T7).\n\t\tl.rounds.next.renewals = append(l.rounds.next.renewals, n)",
			"gives it (T7).\n\t\tl.answerRenewal(n, 0, lease.ErrNotFound)",
		},
	}},
	{"a lost leader answers what waits", "rule 4", []edit{
		{
			leaderGo, "\t\tall.unconfirmed(&b)\n",
			"\t\tfor i := range b.renewals {\n\t\t\tn := b.renewals[i]\n" +
				"\t\t\tl.answerRenewal(n, n.TTL, n.Err)\n\t\t}\n" +
				"\t\tb.renewals = nil\n\t\tall.unconfirmed(&b)\n",
		},
	}},
	{"a batch of renewals released without a confirm round", "rule 4", []edit{
		{
			renewalsGo, "l.rounds.next.together = append(l.rounds.next.together, b)",
			"l.settleAll(b)",
		},
	}},
	{"a follower answers by itself that leases of groups are renewed", "L1", []edit{
		{asksGo, "\t\ta.agent.Renew(a.m.now, n.ID, n)", "\t\ta.m.out.renewed(n, a.agent.Keeps(struct{}{}, n.ID, n.Token), nil)"},
	}},
	{"a follower answers by a round that was sent before", "L1", []edit{
		{
			holderAgent, "\tk.group.next = append(k.group.next, request[H, R]{id, k.by, k.token, of})",
			"\tif a.Pending() && len(k.group.asked) > 0 {\n\t\tk.group.asked = append(k.group.asked, request[H, R]{id, k.by, k.token, of})\n\t} else {\n" +
				"\t\tk.group.next = append(k.group.next, request[H, R]{id, k.by, k.token, of})\n\t}",
		},
	}},
	{"a lease that has left a follower's group is renewed with it", "L1", []edit{
		{holderAgent, "\t\tfor _, id := range r.Left {\n", "\t\tfor _, id := range r.Left[:0] {\n"},
	}},
	{"a follower's groups survive a change of the leader", "L1", []edit{
		{asksGo, "\ta.open, a.over = nil, 0\n\ta.resetGroups()\n", "\ta.open, a.over = nil, 0\n"},
		{asksGo, "\tif a.m.leader == 0 ||\n\t\ta.agent", "\tif a.agent"},
		{holderAgent, "\t\tif r.TTL != g.ttl {", "\t\tif r.TTL != g.ttl && r.TTL != 0 {"},
		{holderAgent, "k.asOf, x.TTL = r.At, r.TTL", "k.asOf, x.TTL = r.At, g.ttl"},
	}},
	{"a follower's renewal is acknowledged without clearing", "rule 6", []edit{
		{
			renewalsGo, "if err != nil || renewed.Clear {",
			"if err != nil || renewed.Clear && b.from == 0 {",
		},
	}},
	{"a lost leader answers a batch of renewals", "rule 4", []edit{
		{
			leaderGo, "\t\tall.unconfirmed(&b)\n",
			"\t\tfor _, x := range b.together {\n\t\t\tif x.from == 0 {\n" +
				"\t\t\t\tl.m.out.Together = append(l.m.out.Together, x)\n\t\t\t}\n\t\t}\n" +
				"\t\tb.together = nil\n\t\tall.unconfirmed(&b)\n",
		},
	}},
	{"a batch of renewals is not looked at again", "T6, L3", []edit{
		{renewalsGo, "if l.m.lessor.Changes() != b.changes {", "if false {"},
	}},
	{"a lost leader goes on timing", "rule 3", []edit{
		{leaderGo, "\tl.demote()\n\theld", "\theld"},
		{takeGo, "\tr.lead = nil\n", "\tif !r.primary {\n\t\tr.lead = nil\n\t}\n"},
	}},

	// Rule 5: promotion.
	{"no full TTL at promotion", "rule 5", []edit{
		{
			promotionGo, "expiry := t.began.after(r.ttl)",
			"expiry := t.began.after(r.ttl / 2)",
		},
	}},
	{"promoted before an entry of the own term", "rule 5, T6", []edit{
		{
			applyGo,
			"if !r.primary && e.GetTerm() == r.term {",
			"if !r.primary {",
		},
	}},

	// Rule 6: checkpoints.
	{"renewal of a checkpointed lease without clearing", "rule 6", []edit{
		{trackerGo, "n.Clear = k.state&isPending != 0 || r.remaining != 0", "n.Clear = false"},
	}},
	{"renewal of a lease with a checkpoint on its way without clearing", "rule 6", []edit{
		{trackerGo, "n.Clear = k.state&isPending != 0 || r.remaining != 0", "n.Clear = r.remaining != 0"},
	}},
	{"checkpoint counted from before it was applied", "rule 6", []edit{
		{
			checkpointGo, "*l.countdown.grow(slot) = l.now.after(c.Remaining)",
			"*l.countdown.grow(slot) = l.now.after(c.Remaining / 2)",
		},
	}},
	{"checkpoint ignored at promotion", "T9, L7", []edit{
		{
			promotionGo, "expiry = *c",
			"_ = *c",
		},
	}},
	{"silence is never checkpointed", "T9, L7", []edit{
		{
			"internal/replica/checkpoint.go", "if len(silent) == 0 {",
			"if len(silent) < 1000 {",
		},
	}},
	{"silence is checkpointed once only", "T9, L7", []edit{
		{checkpointGo, "k.quiet = t.now.after(t.recheckpointInterval(r.ttl))", "k.quiet = k.expiry"},
	}},
	{"a checkpoint says more than is left", "L7", []edit{
		{
			checkpointGo, "remaining := TTL(k.expiry - t.now)",
			"remaining := max(r.ttl, TTL(k.expiry-t.now))",
		},
	}},
	{"clearing a checkpoint keeps the countdown", "rule 6", []edit{
		{checkpointGo, "\t\tr.remaining = 0\n", "\t\tr.remaining = min(r.remaining, 500)\n"},
	}},
	{"checkpoint without a fence of terms", "rule 6, T1", append([]edit{
		{
			silenceGo,
			"\tif c.Term != m.term {\n\t\treturn Result{Err: ErrStale}\n\t}\n", "",
		},
	}, oldLeadersExpiry...)},

	// Rule 7: expiry.
	{"expiry without a fence of terms", "rule 7, T1", append([]edit{
		{
			leasesGo,
			"\tif c.Term != m.term {\n\t\treturn Result{Err: ErrStale}\n\t}\n\tfor _, due",
			"\tfor _, due",
		},
	}, oldLeadersExpiry...)},
	{"internal commands admitted from outside", "T1", oldLeadersExpiry[1:]},
	{"expiry ignores the stamp", "rule 7", []edit{
		{lessorGo, "if r.stamp != d.Stamp {", "if false {"},
	}},
	{"expiry ignores the token", "T28", []edit{
		{lessorGo, "if r.token != d.Token {", "if false {"},
	}},
	{"renewal of an expiring lease", "T5", []edit{
		{
			trackerGo,
			"\tif k.state&isExpiring != 0 {\n\t\treturn Renewal{}, ErrExpiring",
			"\tif false {\n\t\treturn Renewal{}, ErrExpiring",
		},
	}},
	{"alive again before the outcome is known", "T5", []edit{
		{expireGo, "\te.expiring = true\n", "\te.expiring = true\n\te.lessor.Reinstate(due)\n"},
	}},
	{"an expiry that was lost is not decided again", "T12", []edit{
		{
			leaderGo, "} else {\n\t\tl.m.lessor.Reinstate(due)",
			"} else if false {\n\t\tl.m.lessor.Reinstate(due)",
		},
		{leaderGo, "\t\tl.expiry.expiring = false\n", "\t\tl.expiry.expiring = !applied\n"},
	}},

	// The end of a lease.
	{"revoke leaves the keys", "L6, T5", []edit{
		{
			leasesGo,
			"m.deleteKeys(t, ended.Keys, -int64(id))",
			"m.deleteKeys(t, ended.Keys[:0], -int64(id))",
		},
	}},
	{"expiry leaves a key", "L6", []edit{
		{
			leasesGo, "m.deleteKeys(t, ended.Keys, int64(ended.ID))",
			"m.deleteKeys(t, ended.Keys[1:], int64(ended.ID))",
		},
	}},
	{"keys deleted in two revisions", "L6, T14", []edit{
		{
			leasesGo, "\t\t\tm.deleteKeys(t, ended.Keys, int64(ended.ID))",
			"\t\t\tm.deleteKeys(t, ended.Keys[:1], int64(ended.ID))\n\t\t\tm.end(t)\n" +
				"\t\t\tt = m.store.Begin()\n" +
				"\t\t\tm.deleteKeys(t, ended.Keys[1:], int64(ended.ID))",
		},
	}},
	{"a put does not attach", "L6", []edit{
		{
			fsmTxnGo,
			"if id != 0 && (prev == nil || prev.Lease != int64(id)) {",
			"if id != 0 && prev == nil {",
		},
	}},
	{"a put without a lease does not detach", "L6", []edit{
		{fsmTxnGo, "if prev != nil && prev.Lease != int64(id) && prev.Lease != 0 {", "if false {"},
	}},
	{"a delete does not detach", "L6", []edit{
		{fsmTxnGo, "m.detachAll(prev)", "_ = m.detachAll"},
	}},
	{"a put on a lease that is gone", "T21", []edit{
		{
			fsmTxnGo,
			"return id, m.lessor.CheckAttach(id, c.Key)",
			"return id, nil",
		},
		{
			fsmTxnGo,
			"if err := m.lessor.Attach(id, key); err != nil {",
			"if err := m.lessor.Attach(id, key); false {",
		},
	}},

	// Grants.
	{"tokens are not raised", "L5", []edit{
		{grantGo, "\tl.lastToken++\n", "\tl.lastToken |= 1\n"},
	}},
	{"a token that is drawn is not remembered", "L5, T27", []edit{
		{
			lessorGo,
			"DrawToken() Token { return l.nextToken() }",
			"DrawToken() Token { return l.lastToken + 1 }",
		},
	}},
	{"a transaction draws before it is checked", "S1", []edit{
		{
			fsmTxnGo,
			"\tif err := m.validate(&p); err != nil {\n\t\treturn",
			"\tif err := m.validate(&p); err != nil {\n\t\tfor i := range p.ops {\n\t\t\t" +
				"if p.ops[i].Draw {\n\t\t\t\tm.lessor.DrawToken()\n\t\t\t}\n\t\t}\n\t\treturn",
		},
	}},
	{"a name is granted twice", "L4", []edit{
		{
			grantGo,
			"if slot, ok := l.table.names.find(t.Name); ok {",
			"if slot, ok := l.table.names.find(t.Name); ok && t.ID < 0 {",
		},
	}},
	{"the request id is ignored", "T3", []edit{
		{
			grantGo,
			"return t.RequestID != \"\" && t.RequestID == held.RequestID && ",
			"return t.RequestID == \"none\" && ",
		},
	}},
	{"a repeated grant counts anew from receipt", "T3, T24", []edit{
		{
			grantGo,
			"\tif err := l.CheckTerms(&t); err != nil {\n\t\treturn Info{}, err\n\t}\n",
			"\tif slot, ok := l.table.find(t.ID); ok && t.RequestID != \"\" {\n" +
				"\t\tl.end(slot)\n\t}\n",
		},
	}},

	{"a repeated grant has its full TTL", "T3", []edit{
		{sessionGo, "if try == 0 || renews {", "if try >= 0 {"},
	}},

	// Clients.
	{"unlock without token compare", "T16", []edit{
		{locksGo, "Relation: fsm.Equal, Number: claim.create,", "Relation: fsm.Greater,"},
	}},
	{"lock taken without a second look", "T16, T17", []edit{
		{locksGo, "for create != 0 && s.alive() {", "for create != 0 {"},
		{locksGo, "case t.created(s, key) != create:", "case false:"},
		{
			sessionGo, "\tif !s.alive() {\n\t\treturn nil\n\t}\n\tb := &Belief{\n",
			"\tuntil := s.until()\n\tif kind == beliefRole {\n\t\tuntil = max(until, w.now+Second)\n" +
				"\t} else if !s.alive() {\n\t\treturn nil\n\t}\n\tb := &Belief{\n",
		},
		{sessionGo, "From: w.now, Until: s.until(), Create", "From: w.now, Until: until, Create"},
	}},

	// Reads.
	{"read released before its index is applied", "S1", []edit{
		{
			confirmGo,
			"if len(r.done) == 0 || r.done[0].index > applied {",
			"if len(r.done) == 0 {",
		},
	}},
	{"read at a follower released before its index is applied", "S1", []edit{
		{asksGo, "n < len(a.done) && a.done[n].index <= a.m.machine.Index()", "n < len(a.done)"},
	}},
	{"follower answers reads without asking", "S1", []edit{
		{
			readGo, "\tr.relay.asks.read(q)\n",
			"\tq.Left = left(r.lessor, q.Leases)\n\tr.finish(q)\n",
		},
	}},
	{"leader answers reads without a confirm round", "S1", []edit{
		{
			readGo, "\tl.rounds.next.reads = append(l.rounds.next.reads, q)",
			"\tq.Left = left(l.m.lessor, q.Leases)\n\tl.m.finish(q)",
		},
	}},

	// Commands.
	{"forwarded command taken twice", "S1", []edit{
		{
			remotesGo,
			"if seq := f.First + uint64(i); seq == now.next {",
			"if seq := f.First + uint64(i); true {",
		},
	}},
	{"command taken for lost too early", "S1", []edit{
		{forwardGo, "f.sent[n].term < term", "f.sent[n].term <= term"},
	}},
	{"unknown outcome told as failed", "S1", []edit{
		{
			forwardGo,
			"\t\tf.m.out.refuse(s.proposal, ErrLeaderChanged)",
			"\t\tf.m.out.refuse(s.proposal, ErrNoLeader)",
		},
	}},
	{"what a snapshot swallowed is sent again", "S1", []edit{
		{
			installGo,
			"r.relay.commands.rejectReplaced(s.GetMetadata().GetTerm())",
			"r.relay.commands.requeue(s.GetMetadata().GetTerm() + 1)",
		},
	}},
	{"results of another leader's entry", "S1", []edit{
		{inflightGo, "if b.index == index && b.term == term {", "if b.index == index {"},
		{
			inflightGo, "if b.term >= term && (b.index == 0 || b.index > index) {",
			"if b.index == 0 || b.index > index {",
		},
	}},
	{"numbers of an earlier incarnation", "S1", []edit{
		{replicaGo, "first := max(c.FirstSeq, 1)", "first := min(c.FirstSeq, 1)"},
	}},
	{"results in the wrong order", "S1", []edit{
		{forwardGo, "results[f.sent[k].seq-first]", "results[end-1-f.sent[k].seq]"},
	}},

	// Idempotent writes.
	{"a write that is sent again is done again", "S1", []edit{
		{
			fsmOnceGo, "\tr, done := s.answer(c.Number)", "\tr, done := s.answer(c.Number + 1<<40)",
		},
	}},
	{"a write that was given up is done later", "S1", []edit{
		{fsmOnceGo, "if s == nil || c.Number < max(s.settled, c.Settled) {", "if s == nil {"},
	}},
	{"a restart forgets what was done once", "S1, S3", []edit{
		{
			fsmSnapGo, "case tagSessionUser, tagAnswer:\n\t\t\tr.ofSession(t)",
			"case tagSessionUser, tagAnswer:\n\t\t\tr.ofSession(t)\n\t\t\tr.m.sessions.drop(" +
				"r.m.sessions.root.next, len(r.m.sessions.root.next.answers))",
		},
	}},

	// Disks, snapshots, determinism.
	{"acknowledge before sync", "S2", []edit{
		{
			saverGo, "if s.due && !s.write(yield) {\n\t\treturn false\n\t}\n",
			"defer func() {\n\t\tif s.due {\n\t\t\ts.write(yield)\n\t\t}\n\t}()\n",
		},
	}},
	{"snapshot restore drops attachments", "L6, S3", []edit{
		{fsmSnapGo, "if kv.Lease != 0 && !yield(", "if kv.Lease < 0 && !yield("},
	}},
	{"snapshot restore drops checkpoints", "L7, S3", []edit{
		{
			fsmRecordGo,
			"i.Remaining = lease.TTL(d.Varint())",
			"i.Remaining = 0 * lease.TTL(d.Varint())",
		},
	}},
	{"snapshot restore rewinds tokens", "L5, T27", []edit{
		{
			fsmSnapGo, "state.LastToken, state.Generation = uint64(h.LastToken), h.Generation",
			"state.LastToken, state.Generation = uint64(h.LastToken)-1, h.Generation",
		},
	}},
	{"snapshot installed as a mix", "S3", []edit{
		{installGo, "r.machine, r.lessor = m, m.Lessor()", "r.machine = m"},
	}},
	{"map order in apply", "S3, T11", []edit{
		{
			leasesGo,
			"\tt.DeleteFor(keys, cause)",
			"\tset := make(map[string]bool)\n\tfor _, k := range keys {\n\t\tset[k] = true\n\t}\n" +
				"\tt.DeleteFor(slices.Collect(maps.Keys(set)), cause)",
		},
		{leasesGo, "import (\n", "import (\n\t\"maps\"\n\t\"slices\"\n\n"},
	}},
	{"entries applied again after a restart", "S3, T11", []edit{
		{machineGo, "\tif index <= m.index {\n\t\treturn false\n\t}\n", ""},
		{
			driverGo,
			"Applied:                   c.Machine.Index(),",
			"Applied:                   c.Machine.Index() - min(c.Machine.Index(), 1),",
		},
	}},

	// Watches.
	{"watch resumes inside a revision", "W1, T14", []edit{
		{
			simWatcherGo, "x.next = b.Revision + 1\n",
			"x.next = b.Revision + 1\n\t\tn := len(d.Events)\n\t\tif n > 1 && " +
				"d.Events[n-1].KV.ModRevision == d.Events[n-2].KV.ModRevision {\n" +
				"\t\t\td.Events = d.Events[:n-1]\n\t\t\tx.breakOff(w.now)\n\t\t}\n",
		},
	}},
	{"watch begins one revision late", "W1", []edit{
		{watcherGo, "from := max(w.next, w.goal+1)", "from := max(w.next, w.goal+2)"},
	}},
	{"watcher that lagged skips a revision", "W1", []edit{
		{watcherGo, "w.lost = evs[0].Revision()", "w.lost = evs[0].Revision() + 1"},
	}},
	{"watch does not go back to history after a snapshot", "W1", []edit{
		{hubGo, "\th.back.jump(rev)\n", "\tif rev > h.back.rev {\n\t\th.back.add(rev, nil)\n\t}\n"},
	}},
	{"a batch claims too much", "W1", []edit{
		{watcherGo, "return max(live, w.goal)", "return max(live, w.goal) + 1"},
	}},
	{"a batch splits a revision", "W1, T14", []edit{
		{mvccEvents, "if r.ModRevision != last {\n\t\t\tb.next", "if true {\n\t\t\tb.next"},
	}},
}
