package client

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPulseSilence checks that silence begins with the oldest open request and ends with any
// message, and that a member is idle only while no request is pending.
func TestPulseSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = time.Second
		var p pulse
		check := func(what string, silence time.Duration, idle bool) {
			t.Helper()
			if p.silence() != silence || p.idle(d) != idle {
				t.Errorf("%s: silent for %v, idle %t", what, p.silence(), p.idle(d))
			}
		}
		p.received(time.Now())
		check("received", 0, false)
		time.Sleep(d)
		check("nothing sent", 0, true)
		p.sent(time.Now())
		time.Sleep(d)
		p.sent(time.Now())
		time.Sleep(d)
		check("sent twice", 2*d, false)
		p.received(time.Now())
		check("received again", 0, false)
	})
}

// TestPulseRefusal checks that the client leaves a member that rejects all requests for too long,
// and that any other answer starts the time again.
func TestPulseRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pulse
		for i, tt := range []struct {
			after   time.Duration
			refuses bool
			leave   bool
			refusal time.Duration
		}{
			{0, true, false, 0},
			{refusals - 1, true, false, refusals - 1},
			{1, true, true, refusals},
			{1, false, false, 0},
			{refusals, true, false, 0},
			{refusals, true, true, refusals},
		} {
			time.Sleep(tt.after)
			p.received(time.Now())
			leave := p.answered(tt.refuses)
			if leave != tt.leave || p.refusal() != tt.refusal || p.useful != (i >= 3) {
				t.Errorf("answer %d: leave %t, rejecting for %v, useful %t",
					i, leave, p.refusal(), p.useful)
			}
		}
	})
}
