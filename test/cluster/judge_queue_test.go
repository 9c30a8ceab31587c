package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A ledger is the queue as the journal has it: what each event must have been for it to be
// right. The judge knows the queue's keys.
type ledger struct {
	items  map[string]*piece // by ID, in the queue
	dead   map[string]string // payloads by ID
	done   map[string]bool   // payloads that were done
	gone   map[string]bool   // IDs that were in the queue and are not
	again  int               // items that were pushed once more (see Queue.PushAll)
	claims map[string]string // the delay that each claim came after: see piece.waited
	wrong  []error
}

// A piece is an item in the queue.
type piece struct {
	payload string
	claim   int64 // the lease of its claim, 0 for none
	delayed bool  // it is no worker's
	tries   int
	waited  string // who delayed it: the lease of the claim before, or the payload if pushed so
}

func (l *ledger) fail(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Errorf(format, args...))
}

// read follows the queue through a journal.
func (l *ledger) read(j journal) {
	l.items, l.dead = make(map[string]*piece), make(map[string]string)
	l.done, l.gone = make(map[string]bool), make(map[string]bool)
	l.claims = make(map[string]string)
	for _, revision := range slices.Sorted(maps.Keys(j)) {
		l.step(revision, j[revision])
	}
}

// step takes what one transaction, or one end of a lease, did.
func (l *ledger) step(revision int64, events []event) {
	before := make(map[string]piece) // those that this changes, as they were
	touch := func(id string) *piece {
		p := l.items[id]
		if p == nil {
			p = &piece{}
		}
		if _, ok := before[id]; !ok {
			before[id] = *p
		}
		return p
	}
	var did, died map[string]event
	for _, e := range events {
		kind, id := partOfQueue(e.key)
		switch kind {
		case "item":
			l.item(revision, id, e, touch)
		case "claim":
			l.claim(revision, id, e, touch(id))
		case "try":
			if p := touch(id); !e.gone {
				p.tries++
			}
		case "dead":
			died = with(died, id, e)
		case "done":
			did = with(did, id, e)
		}
	}
	l.ends(revision, events, before, did, died)
}

func with(m map[string]event, id string, e event) map[string]event {
	if m == nil {
		m = make(map[string]event)
	}
	m[id] = e
	return m
}

// partOfQueue tells what a key is of, and of which item; of "done", of which payload.
func partOfQueue(key string) (kind, id string) {
	if payload, ok := strings.CutPrefix(key, donePrefix); ok {
		return "done", payload
	}
	rest, ok := strings.CutPrefix(key, usedPrefix+theQueue+"/")
	if !ok {
		return "", ""
	}
	kind, id, _ = strings.Cut(rest, "/")
	return kind, id
}

// item takes an item that comes or goes.
func (l *ledger) item(revision int64, id string, e event, touch func(string) *piece) {
	switch {
	case e.gone:
		touch(id)
		delete(l.items, id)
		l.gone[id] = true
	case l.items[id] != nil:
		l.fail("revision %d: item %s is put twice", revision, id)
	default:
		if l.gone[id] {
			l.again++
		}
		l.items[id] = &piece{payload: e.value}
	}
}

// claim takes a claim that comes or goes. A delay is a claim with no value.
func (l *ledger) claim(revision int64, id string, e event, p *piece) {
	switch {
	case e.gone:
		p.claim, p.delayed = 0, false
	case e.value == "" && l.items[id] == nil:
		l.fail("revision %d: %s, which is no item, is delayed", revision, id)
	case e.value == "":
		p.waited = fmt.Sprintf("%x", p.claim)
		if p.claim == 0 {
			p.waited = p.payload
		}
		p.claim, p.delayed = e.lease, true
	case l.items[id] == nil:
		l.fail("revision %d: %s, which is no item, is claimed", revision, id)
	case p.claim != 0:
		l.fail("revision %d: %s is claimed by %x while %x has it", revision, id, e.lease, p.claim)
	default:
		p.claim, p.delayed = e.lease, false
		l.claims[fmt.Sprintf("%x", e.lease)], p.waited = p.waited, ""
	}
}

// ends looks why items went: they were done by who had the claim, or are dead after all tries.
func (l *ledger) ends(
	revision int64, events []event, before map[string]piece, did, died map[string]event,
) {
	for id, e := range died {
		was := before[id]
		switch {
		case e.gone:
			l.back(revision, l.dead[id], events)
			delete(l.dead, id)
		case l.items[id] != nil || was.payload != e.value || was.tries != maxTries:
			l.fail("revision %d: %s is dead after %d tries, with %q: %+v",
				revision, id, was.tries, e.value, events)
		default:
			l.dead[id] = e.value
		}
	}
	for id, was := range before {
		if l.items[id] != nil || was.payload == "" {
			continue
		}
		if _, ok := died[id]; ok {
			continue
		}
		e, ok := did[was.payload]
		switch {
		case !ok:
			l.fail("revision %d: %s went and was not done: %+v", revision, id, events)
		case was.delayed || e.value != fmt.Sprintf("%x", was.claim):
			l.fail("revision %d: %s was done by %s while %x had it", revision, id, e.value, was.claim)
		}
	}
	for payload := range did {
		if l.done[payload] && l.again == 0 {
			l.fail("revision %d: %s is done twice", revision, payload)
		}
		l.done[payload] = true
	}
}

// back looks whether a dead letter that went is an item again.
func (l *ledger) back(revision int64, payload string, events []event) {
	for _, e := range events {
		if kind, id := partOfQueue(e.key); kind == "item" && l.items[id] != nil &&
			l.items[id].payload == payload {
			return
		}
	}
	l.fail("revision %d: the dead letter %q went, and is no item: %+v", revision, payload, events)
}

// lost says which items were pushed, as the agents know, and neither done nor dead in the end.
func (l *ledger) lost(notes []note) {
	buried := make(map[string]bool)
	for _, payload := range l.dead {
		buried[payload] = true
	}
	asked := make(map[string]bool)
	for _, n := range notes {
		switch n.Verb {
		case notePush:
			asked[n.Text] = true
		case notePushed:
			if !l.done[n.Text] && !buried[n.Text] {
				l.fail("%s (%s) was pushed, and is neither done nor dead", n.What, n.Text)
			}
		}
	}
	for payload := range l.done {
		if !asked[payload] {
			l.fail("%s was done, and nobody pushed it", payload)
		}
		if buried[payload] {
			l.fail("%s was done, and is dead", payload)
		}
	}
	for id, p := range l.items {
		l.fail("%s (%s) is left in the queue", id, p.payload)
	}
}

// early says which items were claimed before their delay was over, and which claims the journal
// does not know.
func (l *ledger) early(notes []note) {
	asked := make(map[string]note)
	tries := make(map[string]int64)
	for _, n := range notes {
		switch n.Verb {
		case notePush:
			asked[n.Text] = n
		case noteNack:
			asked[fmt.Sprintf("%x", n.Lease)] = n
		}
	}
	for _, n := range notes {
		if n.Verb != noteClaim {
			continue
		}
		after, ok := l.claims[fmt.Sprintf("%x", n.Lease)]
		if !ok {
			l.fail("%s has a claim of %s that is not in the journal: %x", n.Who, n.What, n.Lease)
		}
		if n.Tries > maxTries || n.Tries < 1 {
			l.fail("%s claims %s for the %dth time", n.Who, n.What, n.Tries)
		}
		tries[n.What]++
		before, ok := asked[after]
		if ok && before.Delay > 0 && n.At < before.At+max(before.Delay, 100*time.Millisecond) {
			l.fail("%s has %s at %v, which was to wait for %v at %v",
				n.Who, n.What, n.At, before.Delay, before.At)
		}
	}
}

// misqueued says what is wrong with the queue.
func misqueued(notes []note, j journal) (*ledger, error) {
	l := &ledger{}
	l.read(j)
	l.lost(notes)
	l.early(notes)
	return l, errors.Join(l.wrong...)
}
