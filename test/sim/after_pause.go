package sim

import (
	"slices"

	"leasehold.dev/internal/replica"
)

// afterPause leaves part of the mail for later if the process was paused: its sockets are then read
// in any order, so a request may be processed before the news of a new leader.
func (p *process) afterPause(mail *mail) {
	if p.frozen == 0 || p.frozen > p.w.now {
		return
	}
	if p.frozen < p.w.now-20*Millisecond {
		p.frozen = 0 // everything was read
		return
	}
	later := func() bool { return p.w.chance(2) }
	mail.Messages = slices.DeleteFunc(mail.Messages, func(m *replica.Message) bool {
		if !later() {
			return false
		}
		p.mail.Messages = append(p.mail.Messages, m)
		return true
	})
	mail.calls = slices.DeleteFunc(mail.calls, func(c *call) bool {
		if !later() {
			return false
		}
		p.mail.calls = append(p.mail.calls, c)
		return true
	})
	p.wake(p.w.now + p.w.exp(2*Millisecond))
}
