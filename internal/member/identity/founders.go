package identity

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// MayVote reports whether this member is allowed to vote and to acknowledge entries. A founder may
// not until all other founders have recorded it, or until a majority has and the wait is over.
func (p *Peers) MayVote() bool { return p.complete.Load() }

// AwaitFounders starts waiting for the other founders, if necessary. The wait ends after the given
// time, or when stop is called.
func (p *Peers) AwaitFounders(wait time.Duration) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.missing) == 0 {
		return func() {}
	}
	p.c.Logger.Info("creating a cluster: waiting for the other founding members",
		"missing", p.names(), "at-most", wait)
	if wait == 0 {
		return func() {}
	}
	t := time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waited = true
		if err := p.takePartLocked(); err != nil {
			p.c.Logger.Error("cannot record which founding members are present", "error", err)
		}
	})
	return func() { t.Stop() }
}

// Missing returns the names of the founders that have not recorded this member yet.
func (p *Peers) Missing() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names()
}

// names is Missing for a caller that holds mu.
func (p *Peers) names() string {
	return strings.Join(slices.Sorted(maps.Values(p.missing)), ",")
}

// takePartLocked lets this founder take part if enough other founders have recorded it.
func (p *Peers) takePartLocked() error {
	n := len(p.missing)
	if p.complete.Load() || n > p.spare || n > 0 && !p.waited {
		return nil
	}
	p.noted.Assembled = true
	if err := p.c.Disk.SavePeers(p.noted); err != nil {
		p.noted.Assembled = false
		return err
	}
	if p.complete.Store(true); n > 0 {
		p.c.Logger.Warn("creating a cluster without the unreachable members; if they have "+
			"already formed a cluster, stop all of them and recover its data",
			"missing", p.names())
		return nil
	}
	p.c.Logger.Info("all founding members are present")
	return nil
}
