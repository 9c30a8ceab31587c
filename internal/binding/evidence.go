package binding

import (
	"crypto/x509"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Evidence is what is known of a caller, and was verified. It never changes.
type Evidence struct {
	spiffe spiffeid.ID
	hosts  []string // names of hosts, in small letters

	issuer  string // its name in the file
	url     string
	subject string
	claims  map[string]any

	// Expires is when a token ends, and the evidence with it; zero for a certificate.
	Expires time.Time
}

// Subject is whom a token is about, for people: ISSUER:SUBJECT.
func (e *Evidence) Subject() string { return e.issuer + ":" + e.subject }

// OfCertificate returns what a verified certificate says. By the rules for SPIFFE's, one that has
// more than one URI has no SPIFFE ID, and nor has one that may sign others.
func OfCertificate(c *x509.Certificate) *Evidence {
	e := new(Evidence)
	signs := c.IsCA || c.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0
	if len(c.URIs) == 1 && !signs {
		if id, err := spiffeid.FromURI(c.URIs[0]); err == nil {
			e.spiffe = id
		}
	}
	for _, name := range c.DNSNames {
		if name = strings.ToLower(name); validHost(name) && name[0] != '*' {
			e.hosts = append(e.hosts, name)
		}
	}
	return e
}
