package sim

const (
	turnLinesGo = "internal/api/turn/lines.go"
	turnQueueGo = "internal/api/turn/queue.go"
)

// plantedTurns are faults of those who tell others of their turns.
var plantedTurns = []planted{
	{"a turn is told with one before it too many", "L4", []edit{
		{
			turnQueueGo, "r.permits >= int64(len(r.kind.queue.keys))",
			"r.permits+1 >= int64(len(r.kind.queue.keys))",
		},
	}},
	{"a turn is told without a look at the key before", "L4", []edit{
		{turnQueueGo, "return !ok || !last.Before(k.Place)", "return !ok || last != nil"},
	}},
	{"a writer does not wait for readers", "L4", []edit{
		{
			turnQueueGo, "return !k.skips || string(value) != k.beside",
			"return string(value) != \"r\"",
		},
	}},
	{"of those whose turn has come one is told", "T16", []edit{
		{
			turnQueueGo, "\t\tp.to.Told(News{State: Come, Revision: revision, " +
				"Created: p.key.Revision, After: after})\n",
			"\t\tp.to.Told(News{State: Come, Revision: revision, " +
				"Created: p.key.Revision, After: after})\n\t\treturn\n",
		},
	}},
	{"the first change after a line was read is missed", "T16", []edit{
		{turnLinesGo, "e.Revision() > q.from &&", "e.Revision() > q.from+1 &&"},
	}},
	{"who waits says so when he has looked", "T16", []edit{
		{
			turnLinesGo, "\tl.hub.Want(1)\n\tdefer func() {\n\t\tif p == nil {\n" +
				"\t\t\tl.hub.Want(-1)\n\t\t}\n\t}()\n\treturn l.enter(a, asOf, to)\n",
			"\tp, n := l.enter(a, asOf, to)\n\tif p != nil {\n\t\tl.hub.Want(1)\n\t}\n\treturn p, n\n",
		},
	}},
	{"a line is not read again when events are missing", "T16", []edit{
		{turnLinesGo, "\tif gap {\n\t\tl.rereadAll()\n", "\tif gap {\n"},
	}},
	{"a line is taken to be as new as who asks", "Q1", []edit{
		{
			turnLinesGo, "\tif l.reached(q) < asOf && l.lines[a.Prefix] == q {",
			"\tif l.lines[a.Prefix] == q && false {",
		},
		{turnLinesGo, "\tif l.reached(q) < asOf {\n", "\tif false {\n"},
	}},
	{"that a key is gone is not told", "Q1", []edit{
		{turnQueueGo, "\t\tq.end(k, news)\n\t\treturn true\n", "\t\tq.drop(k)\n\t\treturn true\n"},
	}},
	{"that a key was let go is not told", "Q1", []edit{
		{
			turnQueueGo,
			"\t\tq.end(k, News{State: Gone, Revision: e.KV.ModRevision, Created: k.Revision})\n",
			"",
		},
	}},
	{"who has gone while events were missing is forgotten", "Q1", []edit{
		{
			turnQueueGo, "\t\t\tq.end(was, fate(v, was.Place, max(since, was.Revision)))\n",
			"\t\t\t_ = fate(v, was.Place, max(since, was.Revision))\n",
		},
	}},
	{"every key that is gone is said to be deleted", "Q1", []edit{
		{
			turnQueueGo, "\t\tnews.Why, news.Lease = fsm.WhyDeleted(e)\n",
			"\t\tnews.Why, news.Lease = fsm.Deleted, 0\n",
		},
	}},
}
