package members_test

import (
	"errors"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/members"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestUnknownOutcome checks the error if one attempt at a change may have been applied, or may be
// applied later. The error reports this no matter how the next attempt ends.
func TestUnknownOutcome(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		for name, x := range map[string]struct {
			call    func(c *client.Client, begin func()) error
			unknown bool
		}{
			"register": {func(c *client.Client, begin func()) error {
				l := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
				begin()
				_, err := join(ctx, members.New(c, "g"), registration{ID: "shared", Lease: l})
				return err
			}, true},
			"update": {func(c *client.Client, begin func()) error {
				m := register(t, members.New(c, "g"), registration{ID: "updates"})
				begin()
				return m.Update(ctx, []byte("new"))
			}, true},
			"release": {func(c *client.Client, begin func()) error {
				m := register(t, members.New(c, "g"), registration{ID: "leaves"})
				begin()
				return m.Release(ctx)
			}, true},
		} {
			begun := make(chan struct{})
			c := rig.Through(t, r.Members[0], func(r *pb.Request) bool {
				select {
				case <-begun:
					return r.GetTxn() != nil
				default:
					return false
				}
			}, func(n int) *pb.Response {
				if a := rig.Unsure(func() {})(n); a != nil {
					return a
				}
				return rig.Refused(n)
			})
			err := x.call(c, func() { close(begun) })
			if errors.Is(err, client.ErrUnknownOutcome) != x.unknown ||
				!errors.Is(err, client.ErrPermissionDenied) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
