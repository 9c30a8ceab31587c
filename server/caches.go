package server

import (
	"slices"

	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// OpenCache implements native.Node.
func (n *node) OpenCache(o replica.OpenCache, to native.Cache) error {
	return n.inbox.ask(func(m *mail) int { return len(m.Caches) + 1 }, func(m *mail) {
		of := fsm.Holding{ID: o.ID, Token: o.Token}
		m.Caches = append(m.Caches, shell.CacheMail{From: to, Of: of, Open: &o})
	})
}

// AckCache implements native.Node. If the inbox is full, it drops the acknowledgement, and the
// invalidation is sent again.
func (n *node) AckCache(a replica.AckCache, from native.Cache) {
	_ = n.inbox.ask(func(m *mail) int { return len(m.Caches) + 1 }, func(m *mail) {
		of := fsm.Holding{ID: a.ID, Token: a.Token}
		m.Caches = append(m.Caches, shell.CacheMail{From: from, Of: of, Ack: &a})
	})
}

// CloseCache implements native.Node.
func (n *node) CloseCache(of fsm.Holding, to native.Cache) {
	n.inbox.put(func(m *mail) {
		m.Caches = append(m.Caches, shell.CacheMail{From: to, Of: of, Closed: true})
	})
}

// Uses implements native.Node.
func (n *node) Uses() []fsm.Use { return slices.Collect(n.replica.Machine().Uses()) }

// Holds implements native.Node.
func (n *node) Holds(id lease.ID) []keyrange.Range { return n.replica.Machine().Holds(id) }
