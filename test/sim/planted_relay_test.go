package sim

const (
	agentGo       = "internal/holder/agent.go"
	leaseGroupsGo = "lease/groups.go"
)

// plantedRelays lists faults in the code that keeps alive the leases of relays' clients: the agent,
// and the leader's handling of rounds.
var plantedRelays = []planted{
	{"a relay answers by itself", "L1", []edit{
		{
			agentGo, "\t\tout = append(out, Answer[R]{ID: n.id, Of: n.of})\n\t}\n\tg.asked, g.next = nil, nil\n",
			"\t\tout = append(out, Answer[R]{ID: n.id, Of: n.of, TTL: g.ttl})\n\t}\n\tg.asked, g.next = nil, nil\n",
		},
	}},
	{"a renewal is answered by a round that was sent before it came", "L1", []edit{
		{
			agentGo, "\t\tfor _, n := range g.asked {\n",
			"\t\tg.asked, g.next = append(g.asked, g.next...), nil\n\t\tfor _, n := range g.asked {\n",
		},
	}},
	{"what has left a relay's group is answered", "L1", []edit{
		{agentGo, "range r.Left {", "range r.Left[:0] {"},
	}},
	{"a lease leaves a relay's group as of its join", "L1", []edit{
		{
			agentGo, "a.toLeave(Leaving{id, k.group.id, k.asOf})\n\treturn true",
			"a.toLeave(Leaving{id, k.group.id, 0})\n\treturn true",
		},
	}},
	{"a relay is not told that a lease has another TTL", "L1", []edit{
		{
			trackerGo, "\tt.part(slot, true)\n\tk, ttl := t.timings.at(slot)",
			"\tt.part(slot, false)\n\tk, ttl := t.timings.at(slot)",
		},
	}},
	{"a lease that joins another group is not told of", "L1", []edit{
		{
			leaseGroupsGo, "t.part(slot, true)\n\t}\n\tt.wheel.Remove(slot)",
			"t.part(slot, false)\n\t}\n\tt.wheel.Remove(slot)",
		},
	}},
	{"a join counts although a later outcome has revoked it", "L1", []edit{
		{agentGo, "j.Rounds < a.answered || leaves && j.Rounds < a.sent {", "leaves && false {"},
	}},
	{"a lease is in two groups", "L1, L2", []edit{
		{
			leaseGroupsGo, "\tcase k.group != 0:\n\t\tt.part(slot, true)\n",
			"\tcase false:\n\t\tt.part(slot, true)\n",
		},
	}},
	{"a relay loses leaves", "L2", []edit{
		{
			agentGo, "a.toLeave(Leaving{id, k.group.id, k.asOf})\n\treturn true",
			"return true",
		},
	}},
	{"leaves are lost with their round", "L2, L7", []edit{
		{agentGo, "answered: a.sent, fresh: true}", "answered: a.sent}"},
	}},
}
