package sim

const (
	clientCallGo  = "client/call.go"
	clientWatchGo = "client/watch.go"
	columnsGo     = "internal/channel/renewals.go"
	mergeGo       = "internal/relay/merge.go"
	watchingGo    = "internal/relay/watching.go"
)

// plantedBubble are faults that test/bubble looks for: of what it runs and the simulator
// does not, and some that both find.
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
			renewalsGo, "l.rounds.Next.together = append(l.rounds.Next.together, b)",
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
	{"a relay answers a renewal by what it was told of the one before", "L1", []edit{
		{columnsGo, "\trows.Leases = countOne(rows.Leases, len", `
			var ttls []int64
			for _, id := range r.IDs {
				ttls = append(ttls, c.idle.told[id].Milliseconds())
			}
			if allRenewed(ttls) {
				b := renewedMessage(&pb.Header{}, r.Request, ttls)
				c.pieces = append(c.pieces, piece{bytes: b, whole: true, free: true})
				c.tellLocked()
				delete(c.idle.renewing, r.Request)
			}
			rows.Leases = countOne(rows.Leases, len`},
		{columnsGo, "\tc.idle.others++\n\tclear(c.idle.told)\n", ""},
		{columnsGo, "if r.others != c.idle.others {", "if false {"},
	}},
	{"a relay counts a renewal from when it hears of it", "L1", []edit{
		{columnsGo, "type inColumns struct {\n", "type inColumns struct {\n\tat time.Time\n"},
		{columnsGo, "inColumns{message, r.IDs,", "inColumns{time.Now(), message, r.IDs,"},
		{columnsGo, "\t\t\tc.pieces = append(c.pieces, piece{bytes: messages[i],", `
			for k := range ttls[i] {
				ttls[i][k] += time.Since(asked.at).Milliseconds()
			}
			messages[i] = renewedMessage(r.Header, request, ttls[i])
			c.pieces = append(c.pieces, piece{bytes: messages[i],`},
	}},
	{"a relay doubles the TTL of an answer", "L1", []edit{
		{columnsGo, "\t\tttls[i] = r.TtlMs[from:to]\n", `
			ttls[i] = r.TtlMs[from:to]
			for k := range ttls[i] {
				ttls[i][k] *= 2
			}
`},
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
