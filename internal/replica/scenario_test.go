package replica

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// TestScenarios runs the scenarios in testdata, which show what members do for each other's clients
// under faults. Run with -rewrite to update them. cluster.answer ensures that no request is
// answered twice, and "end" detects unanswered requests.
//
// A "do" block has one command per line. The cluster runs until idle after each command. See
// runner.run for the commands.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		cryptotest.SetGlobalRandom(t, 1) // Raft draws election timeouts from it
		r := &runner{cluster: newCluster(t, 1, 2, 3)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r.cluster.t = t
			for line := range strings.Lines(d.Input) {
				words := strings.Fields(line)
				if len(words) == 0 || words[0] == "#" {
					continue
				}
				if err := r.do(words[0], words[1:]); err != nil {
					t.Fatalf("%s: %q: %v", d.Pos, line, err)
				}
				r.run()
			}
			out := strings.Join(r.events, "\n")
			r.events = nil
			if out == "" {
				return "ok\n"
			}
			return out + "\n"
		})
	})
}

type runner struct{ *cluster }

// member returns the named member.
func (r *runner) member(word string) *peer {
	id, err := strconv.ParseUint(word, 10, 64)
	if err != nil || r.members[id] == nil {
		r.t.Fatalf("no member %q", word)
	}
	return r.members[id]
}

func (r *runner) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// do runs one command. A client request starts with the name of the member that receives it.
func (r *runner) do(cmd string, w []string) error {
	if do, ok := requests[cmd]; ok {
		do(r, r.member(w[0]), w[1:])
		return nil
	}
	if do, ok := faults[cmd]; ok {
		do(r, w)
		return nil
	}
	return fmt.Errorf("no such command")
}

// requests holds the client requests by name.
var requests = map[string]func(r *runner, p *peer, w []string){
	"put": func(r *runner, p *peer, w []string) { // KEY=VALUE [LEASE]
		key, value, _ := strings.Cut(w[0], "=")
		put := &fsm.Put{Key: key, Value: []byte(value)}
		if len(w) > 1 {
			put.Lease = lease.ID(r.number(w[1]))
		}
		r.propose(p, put, append([]string{"put"}, w...)...)
	},
	"many": func(r *runner, p *peer, w []string) { // N puts, without running the cluster in between
		for i := range r.number(w[0]) {
			kv := fmt.Sprintf("%s%d", w[1], i)
			r.propose(p, &fsm.Put{Key: kv}, "put", kv)
		}
	},
	"grant": func(r *runner, p *peer, w []string) { // ID TTL
		c := &fsm.Grant{Terms: lease.Terms{
			ID: lease.ID(r.number(w[0])), TTL: lease.TTL(r.number(w[1])),
		}}
		r.propose(p, c, "grant", w[0])
	},
	"revoke": func(r *runner, p *peer, w []string) {
		r.propose(p, &fsm.Revoke{ID: lease.ID(r.number(w[0]))}, "revoke", w[0])
	},
	"renew":     func(r *runner, p *peer, w []string) { r.renew(p, lease.ID(r.number(w[0]))) },
	"read":      func(r *runner, p *peer, _ []string) { r.read(p, 0) },
	"remaining": func(r *runner, p *peer, w []string) { r.read(p, lease.ID(r.number(w[0]))) },
	"expire": func(r *runner, p *peer, w []string) { // not permitted
		c := &fsm.Expire{Term: p.r.term, Leases: []lease.Due{{ID: lease.ID(r.number(w[0]))}}}
		r.propose(p, c, "expire", w[0])
	},
	"checkpoint": func(r *runner, p *peer, w []string) { // not permitted either
		c := &fsm.Checkpoint{Term: p.r.term, Leases: []lease.Checkpoint{
			{ID: lease.ID(r.number(w[0])), Remaining: 1},
		}}
		r.propose(p, c, "checkpoint", w[0])
	},
	"add": func(r *runner, p *peer, w []string) { // ID [learner]
		id := uint64(r.number(w[0]))
		n := fsm.Member{ID: id, PeerURLs: []string{url(id)}, Learner: len(w) > 1, Incarnation: id}
		r.propose(p, &fsm.AddMember{Member: n}, append([]string{"add"}, w...)...)
	},
	"promote": func(r *runner, p *peer, w []string) {
		r.propose(p, &fsm.PromoteMember{ID: uint64(r.number(w[0]))}, "promote", w[0])
	},
	"remove": func(r *runner, p *peer, w []string) {
		r.propose(p, &fsm.RemoveMember{ID: uint64(r.number(w[0]))}, "remove", w[0])
	},
}

// faults holds the commands that affect members and links.
var faults = map[string]func(r *runner, w []string){
	"new": func(r *runner, w []string) { // a cluster of VOTERS, led by the first
		events, patience := r.events, r.silence
		var voters []uint64
		for _, word := range w {
			voters = append(voters, uint64(r.number(word)))
		}
		r.cluster = newCluster(r.t, voters...)
		r.events, r.silence = events, patience
		for _, id := range voters { // restart the voters with this scenario's patience
			r.start(r.members[id])
		}
		r.check(r.members[voters[0]].r.Campaign())
	},
	"patience": func(r *runner, w []string) { // HEARTBEAT LIMIT, for members started from now on
		r.silence = silence.Config{Heartbeat: lease.TTL(r.number(w[0])), Most: lease.TTL(r.number(w[1]))}
	},
	"hang":   func(r *runner, w []string) { r.member(w[0]).hung = true },
	"resume": func(r *runner, w []string) { r.member(w[0]).hung = false },
	"elect":  func(r *runner, w []string) { r.check(r.member(w[0]).r.Campaign()) },
	"pass":   func(r *runner, w []string) { r.pass(lease.Instant(r.number(w[0]))) },
	"cut":    func(r *runner, w []string) { r.eachLink(w, func(l link2) { r.cut[l] = true }) },
	"heal":   func(r *runner, w []string) { r.eachLink(w, func(l link2) { delete(r.cut, l) }) },
	"hold": func(r *runner, w []string) {
		r.eachLink(w, func(l link2) { r.held[l] = append([]*Message{}, r.held[l]...) })
	},
	"release": (*runner).release,
	// the link works again, but its held messages are kept for later
	"shelve": func(r *runner, w []string) {
		r.eachLink(w, func(l link2) {
			r.late = append(r.late, r.held[l]...)
			delete(r.held, l)
		})
	},
	"unshelve": func(r *runner, _ []string) {
		for _, m := range r.late {
			r.arrive(m)
		}
		r.late = nil
	},
	"double": func(r *runner, w []string) { r.eachLink(w, func(l link2) { r.twice[l] = true }) },
	"stand": func(r *runner, _ []string) { // all connections have existed for a long time
		for _, a := range r.ids() {
			for _, b := range r.ids() {
				if a != b {
					r.members[a].r.Connected(b, 0)
				}
			}
		}
	},
	"single":  func(r *runner, w []string) { r.eachLink(w, func(l link2) { delete(r.twice, l) }) },
	"drop":    func(r *runner, w []string) { r.eachLink(w, func(l link2) { delete(r.held, l) }) },
	"stick":   func(r *runner, w []string) { r.member(w[0]).stuck = true },
	"unstick": func(r *runner, w []string) { r.member(w[0]).stuck = false },
	"kill":    func(r *runner, w []string) { r.kill(r.member(w[0])) },
	"start":   func(r *runner, w []string) { r.start(r.member(w[0])) },
	"join":    func(r *runner, w []string) { r.join(uint64(r.number(w[0]))) },
	"gone": func(r *runner, w []string) { // MEMBER detects that OTHER is down
		r.member(w[0]).r.Gone(uint64(r.number(w[1])))
	},
	// FROM sends TO an internal command as if it came from a client.
	"smuggle": func(r *runner, w []string) {
		from, to := r.member(w[0]), r.member(w[1])
		requests[w[2]](r, from, w[3:])
		p := from.r.out.Proposals[0] // the rejected proposal
		from.r.out.Proposals = nil
		r.open = slices.DeleteFunc(r.open, func(name string) bool { return name == p.Owner })
		f := &from.r.relay.commands
		from.r.relay.commands.sent = append(f.sent, sent{f.next, f.term, from.r.now, p.Command, p})
		r.arrive(&Message{Version: 1, From: from.id, To: to.id, Forward: &Forward{
			Term: from.r.term, First: f.next, Base: f.base, Commands: []fsm.Command{p.Command},
		}})
		f.next++
		p.Err = nil
		r.open = append(r.open, p.Owner.(string))
	},
	"snapshot": func(r *runner, w []string) { r.snapshot(r.member(w[0])) },
	"transfer": func(r *runner, w []string) {
		if err := r.member(w[0]).r.Transfer(uint64(r.number(w[1]))); err != nil {
			r.note("error: %v", err)
		}
	},
	"yield":   func(r *runner, w []string) { r.note("yields: %v", r.member(w[0]).r.Yield()) },
	"refresh": func(r *runner, w []string) { r.member(w[0]).r.Refresh() },
	"state":   func(r *runner, _ []string) { r.note("%s", strings.TrimSpace(r.state())) },
	"count": func(r *runner, w []string) { // number of messages of one type since the last count
		r.note("%s: %d", w[0], r.sent[w[0]])
		clear(r.sent)
	},
	"open": func(r *runner, _ []string) { r.note("unanswered: %s", strings.Join(r.open, ", ")) },
	"end": func(r *runner, _ []string) {
		if len(r.open) > 0 {
			r.t.Errorf("never answered: %v", r.open)
		}
		r.note("%s", strings.TrimSpace(r.state()))
	},
}

// release delivers held messages: in order, "reversed" or "twice".
func (r *runner) release(w []string) {
	order := w[len(w)-1]
	r.eachLink(w[:1], func(l link2) {
		held := r.held[l]
		delete(r.held, l)
		if order == "reversed" {
			slices.Reverse(held)
		}
		for _, m := range held {
			r.arrive(m)
			if order == "twice" {
				r.arrive(m)
			}
		}
	})
}

// eachLink calls f for the named links: "1->2", both directions of "1-2", all links of "1", or all
// links.
func (r *runner) eachLink(w []string, f func(link2)) {
	for _, word := range w {
		from, to, one := strings.Cut(word, "->")
		if !one {
			from, to, _ = strings.Cut(word, "-")
		}
		for _, a := range r.ids() {
			for _, b := range r.ids() {
				x, y := fmt.Sprint(a), fmt.Sprint(b)
				switch {
				case word == "all", x == from && y == to,
					!one && y == from && x == to, to == "" && (x == from || y == from):
					f(link2{a, b})
				}
			}
		}
	}
}
