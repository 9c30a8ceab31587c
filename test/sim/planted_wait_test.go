package sim

const (
	queuesGo = "internal/api/waitqueue/queues.go"
	queueGo  = "internal/api/waitqueue/queue.go"
)

// plantedWaits lists faults in wait queues.
var plantedWaits = []planted{
	{"a waiter is told it is ready with one too many before it", "L4", []edit{
		{
			queueGo, "r.permits >= int64(len(r.kind.queue.keys))",
			"r.permits+1 >= int64(len(r.kind.queue.keys))",
		},
	}},
	{"a waiter is told it is ready without a look at the key before", "L4", []edit{
		{queueGo, "return !ok || !last.Before(k.Ticket)", "return !ok || last != nil"},
	}},
	{"a writer does not wait for readers", "L4", []edit{
		{
			queueGo, "return !k.skips || string(value) != k.ignored",
			"return string(value) != \"r\"",
		},
	}},
	{"of the waiters that become ready only one is told", "T16", []edit{
		{
			queueGo, "\t\te.to.Notify(News{State: Ready, Revision: revision, " +
				"Created: e.key.Revision, After: after})\n",
			"\t\te.to.Notify(News{State: Ready, Revision: revision, " +
				"Created: e.key.Revision, After: after})\n\t\treturn\n",
		},
	}},
	{"the first change after a wait queue was read is missed", "T16", []edit{
		{queuesGo, "e.Revision() > q.from &&", "e.Revision() > q.from+1 &&"},
	}},
	{"a waiter registers only after it has looked", "T16", []edit{
		{
			queuesGo, "\tw.hub.Want(1)\n\tdefer func() {\n\t\tif e == nil {\n" +
				"\t\t\tw.hub.Want(-1)\n\t\t}\n\t}()\n\treturn w.enter(a, asOf, to)\n",
			"\te, n := w.enter(a, asOf, to)\n\tif e != nil {\n\t\tw.hub.Want(1)\n\t}\n\treturn e, n\n",
		},
	}},
	{"a wait queue is not read again when events are missing", "T16", []edit{
		{queuesGo, "\tif gap {\n\t\tw.rereadAll()\n", "\tif gap {\n"},
	}},
	{"a wait queue is taken to be as new as the waiter", "Q1", []edit{
		{
			queuesGo, "\tif w.reached(q) < asOf && w.queues[a.Prefix] == q {",
			"\tif w.queues[a.Prefix] == q && false {",
		},
		{queuesGo, "\tif w.reached(q) < asOf {\n", "\tif false {\n"},
	}},
	{"that a key is gone is not told", "Q1", []edit{
		{queueGo, "\t\tq.notifyGone(k, news)\n", ""},
	}},
	{"that a key was detached is not told", "Q1", []edit{
		{
			queueGo,
			"\t\tq.notifyGone(k, News{State: Gone, Revision: e.KV.ModRevision, Created: k.Revision})\n",
			"",
		},
	}},
	{"a key that went while events were missing is forgotten", "Q1", []edit{
		{
			queueGo, "\t\t\tq.notifyGone(was, ending(v, was.Ticket, since))\n",
			"\t\t\t_ = ending(v, was.Ticket, since)\n",
		},
	}},
	{"every key that is gone is said to be deleted", "Q1", []edit{
		{
			queueGo, "\t\tnews.Why, news.Lease = fsm.WhyDeleted(e)\n",
			"\t\tnews.Why, news.Lease = fsm.Deleted, 0\n",
		},
	}},
}
