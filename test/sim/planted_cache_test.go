package sim

const (
	dirCacheGo      = "internal/directory/cache.go"
	admissionGo     = "internal/directory/admission.go"
	invalidationsGo = "internal/directory/invalidations.go"
	gateGo          = "internal/replica/gate.go"
	effectsGo       = "internal/replica/effects.go"
	copiesGo        = "internal/copies/set.go"
)

// plantedCaches lists faults in caches, both on the leader and in the cache itself. The tests of
// packages directory and replica cover the faults that only rare timing exposes. Examples are a
// hold that begins while a command is in flight, and a cache's report that arrives late.
var plantedCaches = []planted{
	{"a write does not wait for one cache", "C1", []edit{
		{admissionGo, "\tif d.over(c) {\n\t\treturn\n", "\tif d.over(c) || c.id%2 == 0 {\n\t\treturn\n"},
	}},
	{"a write waits for one cache of several", "C1", []edit{
		{
			admissionGo, "\td.pending.wait(w, c, x)\n",
			"\tif w.blocked == 0 {\n\t\td.pending.wait(w, c, x)\n\t}\n",
		},
	}},
	{"acknowledgement before drop", "C1", []edit{
		{
			copiesGo, "\tunreported []keyrange.Span //",
			"\tlate       []keyrange.Range\n\tunreported []keyrange.Span //",
		},
		{
			copiesGo, "drop []keyrange.Range) {\n\ts.drop",
			"drop []keyrange.Range) {\n\tdrop, s.late = s.late, drop\n\ts.drop",
		},
	}},
	{"expiry does not pass the gate", "C1, T20", []edit{
		{
			leaderGo, "if due := l.expireSingly(l.expiry.due(l.m.now, l.m.cfg.MaxExpire)); ",
			"if due := l.expiry.due(l.m.now, l.m.cfg.MaxExpire); ",
		},
		{effectsGo, "e.w.Ends, e.w.Urgent = taking(l, c.Leases), true", "_ = c"},
	}},
	{"a new leader forgets the holds", "C1", []edit{
		{
			gateGo, "g.caches.Hold(id, info.Token, ranges, true)",
			"g.caches.Hold(id, info.Token, ranges, false)",
		},
	}},
	{"a cache goes on when its lease, which had lapsed, is renewed", "C1", []edit{
		{holderSet, "func (s *Set) Add(h Held) State {\n", "func (s *Set) Add(h Held) State {\n" +
			"\tif h.Grace == 0 {\n\t\th.Grace = 5 * h.TTL\n\t}\n"},
	}},
	{"a read is cached while a write is pending", "C1", []edit{
		{dirCacheGo, " || d.writes.marks.Hits(r)", ""},
	}},
	{"what is being read outlives an invalidation", "C1", []edit{
		{copiesGo, "f.spoiled = f.spoiled || slices.ContainsFunc(list, f.span.Overlaps)", "_ = f"},
	}},
	{"transactions are gated by the branch for true", "C1, T20", []edit{
		{
			effectsGo, "for _, ops := range [...][]fsm.Op{c.Then, c.Else} {",
			"for _, ops := range [...][]fsm.Op{c.Then} {",
		},
	}},
	{"a revocation is not gated by the keys of the lease", "C1, T20", []edit{
		{effectsGo, "\te.w.Ends = append(e.w.Ends, e.leaseNamed(c.ID, c.Name))\n", ""},
	}},
	{"what a revoked lease held leaves no orphan", "C1", []edit{
		{leasesGo, "m.holds.orphan(&ended.Info, until)", "_ = until\n\tm.holds.set(&ended.Info, nil)"},
	}},
	{"an orphan is over before its time", "C1", []edit{
		{gateGo, "Until: o.Until,", "Until: now + 1,"},
	}},
	{"a cache is over before its expiry", "C1", []edit{
		{dirCacheGo, "return ok && expiry <= d.now", "return !ok || expiry <= d.now+200"},
	}},
	{"an invalidation names only what is new", "C1", []edit{
		{
			invalidationsGo, "\t\t\tn.Drop = append(n.Drop, x.what)\n",
			"\t\t\tif x.seq == c.seq {\n\t\t\t\tn.Drop = append(n.Drop, x.what)\n\t\t\t}\n",
		},
	}},
}
