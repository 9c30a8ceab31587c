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
	// Token is the type of token that a login returns. As in etcd, it is "simple",
	// "jwt,OPTION=VALUE,...", or empty for no tokens. The default is "simple".
	Token string
	// TokenTTL is how long a simple token remains valid after its last use. The default is 5
	// minutes.
	TokenTTL time.Duration
	// BindingsFile contains rules that map external identities to users. External identities are
	// the SANs of client certificates and the tokens of other issuers. The file is reread when it
	// changes. By default, there is none.
	BindingsFile string
	// BcryptCost is the bcrypt cost for hashing new passwords, from 4 to 31. The default is 10.
	BcryptCost int
	// MinPassword is the minimum length of a new password in characters. The default is 8. etcd has
	// no minimum.
	MinPassword int
	// MaxFailedLogins is how many logins from one address can fail in a row. After that, the
	// address can try once every five seconds. The limit per user is ten times as high. It covers
	// all addresses that the user has not logged in from before. 0 means no limit. The default is
	// 10.
	MaxFailedLogins int
	// MetricsPrincipals is how many principals each per-principal metric names, at most 1,000. Any
	// client that can access the metrics can read the names. The default is 0.
	MetricsPrincipals int
	// Audit configures the audit log. By default, there is none.
	Audit Audit
	// Insecure states that only trusted clients can reach the member. Its only effect is to disable
	// the warnings about missing access control.
	Insecure bool
}

// Audit configures the audit log: what is recorded and where.
type Audit struct {
	// File is the destination of records: a file name, "stdout" or "stderr". By default, it is
	// empty, and there is no audit log.
	File string
	// Level is "changes", "writes" or "reads". At "changes", changes to users, roles, members,
	// settings and leases are recorded. At "writes", changes to keys are also recorded. At "reads",
	// reads are recorded as well. Denied calls are always recorded. The default is "changes".
	Level string
	// WhenFull specifies what happens to a call whose record cannot be written. With "drop", the
	// record is dropped and counted. With "stop", the call is rejected. The default is "drop".
	WhenFull string
	// MaxMegabytes is the size at which a file is rotated. MaxFiles is the number of old files to
	// keep; 0 keeps all of them. The defaults are 100 and 10.
	MaxMegabytes, MaxFiles int
}

func defaultAccess() Access {
	return Access{
		Token: "simple", TokenTTL: 5 * time.Minute, BcryptCost: 10, MinPassword: 8,
		MaxFailedLogins: 10, Audit: Audit(audit.Defaults()),
	}
}

// check returns an error that lists the invalid settings.
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
