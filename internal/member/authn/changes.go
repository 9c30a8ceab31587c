package authn

import "sync/atomic"

// Changes notifies open streams and waiting calls that users or roles have changed, or that a
// caller's user has changed.
type Changes struct{ next atomic.Pointer[chan struct{}] }

// NewChanges returns a Changes with no announcements.
func NewChanges() *Changes {
	c := new(Changes)
	c.next.Store(new(make(chan struct{})))
	return c
}

// Announce announces a change. The change must already be visible in the view.
func (c *Changes) Announce() { close(*c.next.Swap(new(make(chan struct{})))) }

// AccessChanged implements api.Node. The channel is closed at the next change.
func (c *Changes) AccessChanged() <-chan struct{} { return *c.next.Load() }
