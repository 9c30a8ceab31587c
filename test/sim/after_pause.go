package sim

import (
	"slices"

	"leasehold.dev/internal/replica"
)

// afterPause defers part of the mail if the process was paused. A resumed process reads its sockets
// in any order, so it may process a request before it receives the news of a new leader.
func (p *process) afterPause(mail *mail) {
	if p.frozen == 0 || p.frozen > p.w.now {
		return
	}
	if p.frozen < p.w.now-20*Millisecond {
		p.frozen = 0 // all mail has been read
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
