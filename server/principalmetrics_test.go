package server

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// gather reads a metric of principals from a member, by "resource principal".
func (r *running) gather(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := r.core.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			labels := make(map[string]string)
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			n := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			out[labels["resource"]+" "+labels["principal"]] = n
		}
	}
	return out
}

// tenant makes a user who has so many leases of which it may have most, and then asks for as many
// more, which are refused.
func (r *running) tenant(t *testing.T, user string, has, refused int) {
	t.Helper()
	r.asRoot(t, &fsm.UserAdd{Name: user, NoPassword: true})
	r.asRoot(t, &fsm.SetLimits{
		Of:   access.Holder{Kind: access.OfUser, Name: user},
		List: []access.LimitChange{{What: access.Leases, Most: int64(has)}},
	})
	ctx := api.WithCaller(t.Context(), access.Caller{
		User: user, Revision: r.node.View().Access.Revision(),
	})
	for i := range has + refused {
		id := lease.ID(1000*len(r.node.View().Access.Users()) + i)
		res, err := r.node.Propose(ctx, &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000}})
		limit := new(access.LimitError)
		if err = errors.Join(err, res.Err); errors.As(err, &limit) != (i >= has) {
			t.Fatalf("lease %d of %s: %v", i, user, err)
		}
	}
}

// Goal: metrics tell which principals have most and which are refused, by as many names as were
// asked for, and how much all have; without the setting they name nobody. Method: three users with
// leases, of which two are refused further ones, and one has a name that cannot be a label.
func TestPrincipalMetrics(t *testing.T) { virtual.Test(t, testPrincipalMetrics) }

func testPrincipalMetrics(t *testing.T) {
	type values = map[string]float64
	for names, want := range []struct{ use, refused values }{
		{values{"leases ": 6}, values{"leases ": 3}},
		{values{"leases ": 6}, values{"leases u1": 1, "leases ": 2}},
		{values{"leases u2": 2, "leases ": 4}, values{"leases u1": 1, "leases u2": 2}},
	} {
		c := cheapConfig(t.TempDir())
		c.Access.MetricsPrincipals = names
		r := run(t, c)
		withUsers(t, r)
		r.tenant(t, "u1", 1, 1)
		r.tenant(t, "u2", 2, 2)
		r.tenant(t, "\xff", 3, 0)
		for name, want := range map[string]values{
			"leasehold_principal_use": want.use, "leasehold_limit_refusals_total": want.refused,
		} {
			got := r.gather(t, name)
			maps.DeleteFunc(got, func(key string, n float64) bool {
				return n == 0 || strings.HasPrefix(key, "bytes ")
			})
			if !maps.Equal(got, want) {
				t.Errorf("%d names: %s is %v, want %v", names, name, got, want)
			}
		}
	}
}
