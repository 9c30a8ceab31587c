package sim

const (
	queuesGo = "internal/api/waitqueue/queues.go"
	queueGo  = "internal/api/waitqueue/queue.go"
)

// plantedTurns are faults of those who tell others of their turns.
var plantedTurns = []planted{
	{"a turn is told with one before it too many", "L4", []edit{
		{
			queueGo, "r.permits >= int64(len(r.kind.queue.keys))",
			"r.permits+1 >= int64(len(r.kind.queue.keys))",
		},
	}},
	{"a turn is told without a look at the key before", "L4", []edit{
		{queueGo, "return !ok || !last.Before(k.Ticket)", "return !ok || last != nil"},
	}},
	{"a writer does not wait for readers", "L4", []edit{
		{
			queueGo, "return !k.skips || string(value) != k.beside",
			"return string(value) != \"r\"",
		},
	}},
	{"of those whose turn has come one is told", "T16", []edit{
		{
			queueGo, "\t\te.to.Told(News{State: Ready, Revision: revision, " +
				"Created: e.key.Revision, After: after})\n",
			"\t\te.to.Told(News{State: Ready, Revision: revision, " +
				"Created: e.key.Revision, After: after})\n\t\treturn\n",
		},
	}},
	{"the first change after a line was read is missed", "T16", []edit{
		{queuesGo, "e.Revision() > q.from &&", "e.Revision() > q.from+1 &&"},
	}},
	{"who waits says so when he has looked", "T16", []edit{
		{
			queuesGo, "\tw.hub.Want(1)\n\tdefer func() {\n\t\tif e == nil {\n" +
				"\t\t\tw.hub.Want(-1)\n\t\t}\n\t}()\n\treturn w.enter(a, asOf, to)\n",
			"\te, n := w.enter(a, asOf, to)\n\tif e != nil {\n\t\tw.hub.Want(1)\n\t}\n\treturn e, n\n",
		},
	}},
	{"a line is not read again when events are missing", "T16", []edit{
		{queuesGo, "\tif gap {\n\t\tw.rereadAll()\n", "\tif gap {\n"},
	}},
	{"a line is taken to be as new as who asks", "Q1", []edit{
		{
			queuesGo, "\tif w.reached(q) < asOf && w.queues[a.Prefix] == q {",
			"\tif w.queues[a.Prefix] == q && false {",
		},
		{queuesGo, "\tif w.reached(q) < asOf {\n", "\tif false {\n"},
	}},
	{"that a key is gone is not told", "Q1", []edit{
		{queueGo, "\t\tq.end(k, news)\n\t\treturn true\n", "\t\tq.drop(k)\n\t\treturn true\n"},
	}},
	{"that a key was let go is not told", "Q1", []edit{
		{
			queueGo,
			"\t\tq.end(k, News{State: Gone, Revision: e.KV.ModRevision, Created: k.Revision})\n",
			"",
		},
	}},
	{"who has gone while events were missing is forgotten", "Q1", []edit{
		{
			queueGo, "\t\t\tq.end(was, fate(v, was.Ticket, max(since, was.Revision)))\n",
			"\t\t\t_ = fate(v, was.Ticket, max(since, was.Revision))\n",
		},
	}},
	{"every key that is gone is said to be deleted", "Q1", []edit{
		{
			queueGo, "\t\tnews.Why, news.Lease = fsm.WhyDeleted(e)\n",
			"\t\tnews.Why, news.Lease = fsm.Deleted, 0\n",
		},
	}},
}
