package sim

const (
	clientCallGo  = "client/call.go"
	clientWatchGo = "client/watch.go"
	keepingGo     = "internal/relay/keeping.go"
	mergeGo       = "internal/relay/merge.go"
	watchingGo    = "internal/relay/watching.go"
)

// plantedBubble lists the faults that test/bubble must detect. Most are in code that the simulator
// does not run. A few are detected by both.
var plantedBubble = []planted{
	{"a member says that it has saved before it has synced", "S2", []edit{
		{
			storageGo, "return to.file.WriteSync(d.blocks, f.at)",
			"_, err := to.file.WriteAt(d.blocks, f.at)\n\treturn err",
		},
	}},
	{"the client counts from receipt", "T2", []edit{
		{holderRenew, "\tl.TTL = ttl\n\ts.confirm(l, sent)", "\tl.TTL = ttl\n\ts.confirm(l, s.now)"},
	}},
	{"the client's renewals are released without a confirm round", "rule 4", []edit{
		{
			renewalsGo, "l.rounds.next.together = append(l.rounds.next.together, b)",
			"l.settleAll(b)",
		},
	}},
	{"no full time after a jump of the clock", "rule 2", []edit{
		{shellGo, "if s.Jumped || s.Stalled {", "if false {"},
	}},
	{"a watch goes on one revision late", "W1", []edit{
		{clientWatchGo, "w.from, w.part = revision+1, nil", "w.from, w.part = revision+2, nil"},
	}},
	{"a write is sent again under another number", "S1", []edit{
		{
			clientCallGo, "\t\ts.unsure = s.unsure || s.kind != read\n\t\treturn true\n",
			"\t\ts.unsure, s.number = s.unsure || s.kind != read, number{}\n\t\treturn true\n",
		},
	}},
	{"a relay answers a renewal by itself", "L1", []edit{
		{keepingGo, "\tits.waiting += len(message)\n", `
	for i, id := range r.ids {
		w.ttls[i] = int64(k.agent.Keeps(c, id, 0))
	}
	c.Deliver(renewedMessage(&pb.Header{}, w.request, w.ttls))
	return true
`},
	}},
	{"a relay counts a renewal from when it hears of it", "L1", []edit{
		{keepingGo, "type waiting struct {\n", "type waiting struct {\n\tat time.Time\n"},
		{keepingGo, "\tw := &waiting{\n", "\tw := &waiting{\n\t\tat: time.Now(),\n"},
		{
			keepingGo, "w.ttls[a.Of.at] = int64(a.TTL)\n",
			"w.ttls[a.Of.at] = int64(a.TTL) + time.Since(w.at).Milliseconds()\n",
		},
	}},
	{"a relay doubles the TTL of an answer", "L1", []edit{
		{keepingGo, "w.ttls[a.Of.at] = int64(a.TTL)\n", "w.ttls[a.Of.at] = 2 * int64(a.TTL)\n"},
	}},
	{"a watch that joins others in a relay misses what they were told last", "W1", []edit{
		{mergeGo, "\t\tif !f.give(t) {\n\t\t\treturn false\n\t\t}\n\t}\n\tg.joined", `
			f.at = max(f.at, t.revision)
		}
		g.joined`},
	}},
	{"a watch goes on when the right to it is taken away", "A1", []edit{
		{guardGo, "if by == g.state && who == g.who {", "if g.state != nil {"},
	}},
	{"a watch that joins others in a relay is told again", "W1", []edit{
		{
			watchingGo, "rest, err := t.after(f.at)\n\tif err",
			"rest, err := t.bytes, error(nil)\n\tif err",
		},
	}},
}
