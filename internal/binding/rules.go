package binding

import (
	"slices"
	"strings"

	"leasehold.dev/internal/access"
)

// Principal is the identity of a caller.
type Principal struct {
	// Name is a user. If Bound is not nil, it is instead the name of the principal itself: its
	// SPIFFE ID, dns:HOST, or ISSUER:SUBJECT. Names from different types of evidence never collide.
	Name  string
	Bound *access.Bound
}

// Equal reports whether p and q are the same principal with the same roles.
func (p Principal) Equal(q Principal) bool {
	if p.Bound == nil || q.Bound == nil {
		return p == q
	}
	return p.Name == q.Name && slices.Equal(p.Bound.Roles, q.Bound.Roles)
}

// maxName limits the length of a principal's name, because the name is stored with each of the
// principal's leases and commands.
const maxName = 2048

// identify returns the principal that the rules assign to the evidence, if any. If a matching rule
// names a user, the first such rule wins. Otherwise, the principal gets the roles of all matching
// rules.
func (f *file) identify(e *Evidence) (p Principal, ok bool) {
	var roles []string
	for i := range f.Bindings {
		r := &f.Bindings[i]
		name := f.match(r, e)
		switch {
		case name == "":
			continue
		case r.User != "":
			return Principal{Name: r.User}, true
		case p.Name == "":
			p.Name = name
		}
		roles = append(roles, r.Roles...)
	}
	if p.Name == "" || len(p.Name) > maxName {
		return Principal{}, false
	}
	slices.Sort(roles)
	p.Bound = &access.Bound{Roles: slices.Compact(roles)}
	return p, true
}

// match returns the name of the principal if the rule matches, and "" otherwise.
func (f *file) match(r *rule, e *Evidence) string {
	switch {
	case r.SPIFFE != "" && !e.spiffe.IsZero():
		id := e.spiffe.String()
		if below, all := strings.CutSuffix(r.SPIFFE, "*"); id == r.SPIFFE ||
			all && len(id) > len(below) && strings.HasPrefix(id, below) {
			return id
		}
	case r.DNS != "":
		i := slices.IndexFunc(e.hosts, func(h string) bool { return matchHost(r.DNS, h) })
		if i < 0 {
			return ""
		}
		if !e.spiffe.IsZero() {
			return e.spiffe.String()
		}
		return "dns:" + e.hosts[0]
	case r.Issuer != "" && e.issuer == r.Issuer:
		for claim, want := range r.Claims {
			if !matchClaim(e.claims[claim], want) {
				return ""
			}
		}
		return e.Subject()
	}
	return ""
}

// matchHost reports whether a rule matches a host, either exactly or with a wildcard. The star
// matches a single label.
func matchHost(rule, host string) bool {
	domain, all := strings.CutPrefix(rule, "*.")
	if !all {
		return rule == host
	}
	label, rest, _ := strings.Cut(host, ".")
	return label != "" && rest == domain
}

// matchClaim reports whether a claim has the wanted value. If the claim is a list, one of its
// elements must have it.
func matchClaim(claim any, want string) bool {
	switch c := claim.(type) {
	case string:
		beginning, all := strings.CutSuffix(want, "*")
		return c == want || all && strings.HasPrefix(c, beginning)
	case bool:
		return c && want == "true" || !c && want == "false"
	case []any:
		return slices.ContainsFunc(c, func(x any) bool {
			_, list := x.([]any)
			return !list && matchClaim(x, want)
		})
	default:
		return false
	}
}
