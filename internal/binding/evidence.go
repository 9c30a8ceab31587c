package binding

import (
	"crypto/x509"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Evidence is verified information about a caller. It is immutable.
type Evidence struct {
	spiffe spiffeid.ID
	hosts  []string // host names in lower case

	issuer  string // name of the issuer in the file
	url     string
	subject string
	claims  map[string]any

	// Expires is when the token, and therefore the evidence, expires. It is zero for a certificate.
	Expires time.Time
}

// Subject returns the subject of a token in human-readable form, as ISSUER:SUBJECT.
func (e *Evidence) Subject() string { return e.issuer + ":" + e.subject }

// OfCertificate returns the evidence of a verified certificate. According to the SPIFFE rules, a
// certificate has no SPIFFE ID if it contains several URIs or is allowed to sign other
// certificates.
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
