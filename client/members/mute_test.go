package members_test

import (
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/members"
	"leasehold.dev/test/rig"
)

// TestRegisterUnanswered checks that an unanswered registration fails when its lease expires on the
// local clock, even if the caller's context lasts longer (T16).
func TestRegisterUnanswered(t *testing.T) {
	rig.Mute(t, rig.Unanswered, func(t *testing.T, c *client.Client) {
		const ttl = 10 * time.Second
		ctx := rig.Soon(t)
		l := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: ttl}))
		began := time.Now()
		_, err := join(ctx, members.New(c, "g"), registration{ID: "a", Lease: l})
		if !errors.Is(err, client.ErrExpired) || time.Since(began) > ttl {
			t.Errorf("%v after %v, want ErrExpired", err, time.Since(began))
		}
	})
}
