package authn

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/login"
)

// attempts counts password logins.
type attempts struct{ *prometheus.CounterVec }

func newAttempts(r prometheus.Registerer) attempts {
	a := attempts{prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "logins_total",
		Help: "Password logins: accepted, refused, limited because of too many earlier " +
			"refusals, or failed because the member could not check the password.",
	}, []string{"outcome"})}
	for _, outcome := range []string{"accepted", "refused", "limited", "failed"} {
		a.WithLabelValues(outcome) // makes all outcomes appear from the start
	}
	r.MustRegister(a)
	return a
}

func (a attempts) count(right bool, err error) {
	outcome := "refused"
	switch {
	case errors.Is(err, login.ErrTooManyFailures):
		outcome = "limited"
	case err != nil:
		outcome = "failed"
	case right:
		outcome = "accepted"
	}
	a.WithLabelValues(outcome).Inc()
}
