package server

import (
	"errors"
	"fmt"
	"time"

	"leasehold.dev/internal/audit"
	"leasehold.dev/internal/login"
	"leasehold.dev/internal/member/metrics"
)

// Access configures logins under access control, and whether access control is required.
type Access struct {
	// Token is the kind of token that a login returns, as in etcd: "simple",
	// "jwt,OPTION=VALUE,...", or empty for none. Default "simple".
	Token string
	// TokenTTL is how long a simple token is valid after its last use. Default 5 minutes.
	TokenTTL time.Duration
	// BindingsFile has rules that map external identities to users: the SANs of client
	// certificates, and tokens of other issuers. It is read again when it changes. Default: none.
	BindingsFile string
	// BcryptCost is the bcrypt cost of the hashes of new passwords, 4 to 31. Default 10.
	BcryptCost int
	// MinPassword is how many characters a new password needs. Default 8; etcd has no minimum.
	MinPassword int
	// MaxFailedLogins is how many logins may fail in a row from one address; after that, the
	// address may try once every five seconds. For one user, the limit is ten times as high,
	// counted over all addresses from which it has not logged in before. 0: no limit. Default 10.
	MaxFailedLogins int
	// MetricsPrincipals is how many principals each metric about principals names, at most 1,000.
	// Every client that reaches the metrics can read the names. Default 0.
	MetricsPrincipals int
	// Audit configures the audit log. Default: none.
	Audit Audit
	// Insecure declares that only trusted clients can reach the member. It only turns off the
	// warnings about missing access control.
	Insecure bool
}

// Audit configures the audit log: what is recorded, and where.
type Audit struct {
	// File is where records go: a file, "stdout" or "stderr". Default empty: no audit log.
	File string
	// Level is "changes": of users, roles, members, settings and leases; "writes": of keys as well;
	// or "reads": these as well. Denied calls are always recorded. Default "changes".
	Level string
	// WhenFull is what happens to a call if its record cannot be written: "drop" drops and counts
	// the record, "stop" rejects the call. Default "drop".
	WhenFull string
	// MaxMegabytes is the size at which a file is rotated, and MaxFiles how many old ones are kept;
	// 0: all. Defaults 100 and 10.
	MaxMegabytes, MaxFiles int
}

func defaultAccess() Access {
	return Access{
		Token: "simple", TokenTTL: 5 * time.Minute, BcryptCost: 10, MinPassword: 8,
		MaxFailedLogins: 10, Audit: Audit(audit.Defaults()),
	}
}

// check returns the errors in the settings.
func (a *Access) check() error {
	return errors.Join(broken(
		rule{a.TokenTTL <= 0, "--auth-token-ttl must be above 0"},
		rule{!login.CheckCost(a.BcryptCost), "--bcrypt-cost must be from 4 to 31"},
		rule{
			a.MinPassword < 0 || a.MinPassword > login.MaxPassword,
			"--min-password-length must be from 0 to 72",
		},
		rule{a.MaxFailedLogins < 0, "--max-failed-logins must not be negative"},
		rule{
			a.MetricsPrincipals < 0 || a.MetricsPrincipals > metrics.MaxPrincipals,
			fmt.Sprintf("--metrics-principals must be from 0 to %d", metrics.MaxPrincipals),
		},
	), (*audit.Options)(&a.Audit).Check())
}
