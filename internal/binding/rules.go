package binding

import (
	"slices"
	"strings"

	"leasehold.dev/internal/access"
)

// Principal is who a caller is.
type Principal struct {
	// Name is that of a user or, if Bound is not nil, of the principal itself: its SPIFFE ID,
	// dns:HOST, or ISSUER:SUBJECT. No two kinds of evidence have the same names.
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

// maxName bounds the name of a principal. It is with each of its leases and commands.
const maxName = 2048

// who says who fits the rules with some evidence, not ok if nobody does. The first rule that fits
// and names a user decides; else it is the roles of all rules that fit.
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

// fits returns the name of the principal that fits a rule, "" if none does.
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

// matchHost reports whether a rule is for a host: by its name, or as one of a domain, where a star
// stands for one label.
func matchHost(rule, host string) bool {
	domain, all := strings.CutPrefix(rule, "*.")
	if !all {
		return rule == host
	}
	label, rest, _ := strings.Cut(host, ".")
	return label != "" && rest == domain
}

// matchClaim reports whether a claim, or an element of one that is a list, is what a rule wants.
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
