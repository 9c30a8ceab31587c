package binding

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"leasehold.dev/internal/settings"
)

// algorithms are the supported signing algorithms of tokens. All of them are asymmetric. With a
// symmetric key, any program that can verify tokens could also create them.
var algorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

// file is the content of an --auth-config file.
type file struct {
	// CommonNames means that a certificate's common name is taken as a user name if no rule
	// matches.
	CommonNames bool             `yaml:"common-names"`
	Issuers     []issuerSettings `yaml:"issuers"`
	Bindings    []rule           `yaml:"bindings"`
}

// issuerSettings configures an issuer and determines which of its tokens are accepted.
type issuerSettings struct {
	Line int `yaml:",line"`
	// Name identifies the issuer in rules, and is a prefix of its principals' names.
	Name string `yaml:"name"`
	// URL is the issuer's name in its tokens, and the base of its discovery document. If KeysURL or
	// KeysFile is set, URL can be any text.
	URL string `yaml:"url"`
	// Audiences are the names of this cluster. A token must have been issued for one of them.
	Audiences []string `yaml:"audiences"`
	// KeysURL or KeysFile specifies where the keys are if they are not in the discovery document.
	KeysURL  string `yaml:"keys-url"`
	KeysFile string `yaml:"keys-file"`
	// CAFile contains the certificate authorities that are trusted for the issuer's URLs. The
	// default is the system's authorities.
	CAFile     string   `yaml:"ca-file"`
	Algorithms []string `yaml:"algorithms"`
	// Leeway is how much clock skew between the issuer and this member is tolerated.
	Leeway *time.Duration `yaml:"clock-leeway"`
	// Refresh is the age at which keys are fetched again.
	Refresh time.Duration `yaml:"refresh"`
	// NameClaim is the claim that identifies the subject.
	NameClaim string `yaml:"name-claim"`
}

// rule binds matching callers to a user or to roles.
type rule struct {
	Line int `yaml:",line"`
	// Exactly one of these is set. SPIFFE is a SPIFFE ID, or a pattern that ends in "/*" and
	// matches everything below a path or a trust domain. DNS is a host name, or a pattern that
	// begins with "*." and matches all hosts of a domain. Issuer is the name of an issuer.
	SPIFFE string `yaml:"spiffe"`
	DNS    string `yaml:"dns"`
	Issuer string `yaml:"issuer"`
	// Claims must all be present in a token. A value that ends in "*" matches by prefix.
	Claims map[string]string `yaml:"claims"`

	User  string   `yaml:"user"`
	Roles []string `yaml:"roles"`
}

// Defaults and limits for the settings.
const (
	defaultLeeway  = 30 * time.Second
	maxLeeway      = 5 * time.Minute
	defaultRefresh = 5 * time.Minute
	minRefresh     = 10 * time.Second
)

// readFile reads and parses a file.
func readFile(path string) (*file, []byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("--auth-config: %w", err)
	}
	f, err := parse(text)
	if err != nil {
		return nil, text, fmt.Errorf("--auth-config: %s%w", path, err)
	}
	return f, text, nil
}

// parse parses a file. Each of its errors begins with the line number.
func parse(text []byte) (*file, error) {
	root, err := settings.Parse(text)
	if err != nil {
		return nil, err
	}
	f := &file{CommonNames: true}
	if err := settings.Decode(root, f); err != nil {
		return nil, err
	}
	names, urls := make(map[string]int), make(map[string]int)
	for i := range f.Issuers {
		s := &f.Issuers[i]
		s.setDefaults()
		if err := s.check(); err != nil {
			return nil, atLine(s.Line, err)
		}
		if line := max(names[s.Name], urls[s.URL]); line != 0 {
			return nil, atLine(s.Line, fmt.Errorf("the issuer on line %d has the same name or url", line))
		}
		names[s.Name], urls[s.URL] = s.Line, s.Line
	}
	if len(f.Bindings) == 0 {
		// The file might be empty because it is still being written.
		return nil, errors.New(": it contains no bindings; omit --auth-config if none are " +
			"intended")
	}
	for i := range f.Bindings {
		if err := f.Bindings[i].check(names); err != nil {
			return nil, atLine(f.Bindings[i].Line, err)
		}
	}
	return f, nil
}

func atLine(line int, err error) error { return fmt.Errorf(":%d: %w", line, err) }

// setDefaults fills in missing settings.
func (s *issuerSettings) setDefaults() {
	if s.Leeway == nil {
		s.Leeway = new(defaultLeeway)
	}
	if s.Refresh == 0 {
		s.Refresh = defaultRefresh
	}
	if s.Algorithms == nil {
		s.Algorithms = algorithms
	}
	if s.NameClaim == "" {
		s.NameClaim = "sub"
	}
}

// issuerName matches valid issuer names. A name cannot contain a colon, because a colon ends the
// issuer name in principals.
var issuerName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

// reserved lists names that no issuer can have, because they are prefixes of other principals'
// names.
var reserved = []string{"dns", "spiffe"}

func (s *issuerSettings) check() error {
	switch {
	case !issuerName.MatchString(s.Name) || slices.Contains(reserved, s.Name):
		return fmt.Errorf("an issuer's name must consist of lower-case letters, digits, dots and "+
			"dashes (%s are reserved), not %q", strings.Join(reserved, " and "), s.Name)
	case s.URL == "":
		return fmt.Errorf("issuer %s needs a url that matches the iss claim in its tokens", s.Name)
	case len(s.Audiences) == 0 || slices.Contains(s.Audiences, ""):
		return fmt.Errorf("issuer %s needs audiences: values of the aud claim that "+
			"identify this cluster", s.Name)
	case s.KeysURL != "" && s.KeysFile != "":
		return fmt.Errorf("issuer %s has both keys-url and keys-file; omit one of them", s.Name)
	case *s.Leeway < 0 || *s.Leeway > maxLeeway:
		return fmt.Errorf("clock-leeway of issuer %s must be between 0s and %s", s.Name, maxLeeway)
	case s.Refresh < minRefresh:
		return fmt.Errorf("the refresh interval of issuer %s must be at least %s",
			s.Name, minRefresh)
	case len(s.Algorithms) == 0:
		return fmt.Errorf("the algorithms list of issuer %s is empty; omit it to allow all", s.Name)
	}
	for _, a := range s.Algorithms {
		if !slices.Contains(algorithms, a) {
			return fmt.Errorf("issuer %s: algorithm %q is not one of %s", s.Name, a,
				strings.Join(algorithms, ", "))
		}
	}
	source := s.URL
	if s.KeysFile != "" {
		return nil
	}
	if s.KeysURL != "" {
		source = s.KeysURL
	}
	if err := checkURL(source); err != nil {
		return fmt.Errorf("issuer %s: %w", s.Name, err)
	}
	return nil
}

// checkURL rejects URLs for which an attacker on the network could supply keys.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Host == "" || u.Fragment != "" || u.User != nil:
		return fmt.Errorf("%q is not a URL such as https://login.example.com", text)
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("the URL %q must begin with https:// (http:// is allowed only for this machine)",
		text)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (r *rule) check(issuers map[string]int) error {
	kinds := 0
	for _, text := range []string{r.SPIFFE, r.DNS, r.Issuer} {
		if text != "" {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("a binding needs exactly one of spiffe, dns or issuer")
	case (r.User == "") == (r.Roles == nil):
		return errors.New("a binding needs either a user or roles")
	case r.Roles != nil && (len(r.Roles) == 0 || slices.Contains(r.Roles, "")):
		return errors.New("a binding's roles must not be empty")
	case r.Issuer == "" && r.Claims != nil:
		return errors.New("claims require an issuer")
	case r.Issuer != "" && issuers[r.Issuer] == 0:
		return fmt.Errorf("issuer %q is not defined%s", r.Issuer, nearestIssuer(r.Issuer, issuers))
	case r.DNS != "" && !validHost(r.DNS):
		return fmt.Errorf("dns %q is not a host name such as a.example.com or *.example.com",
			r.DNS)
	case r.SPIFFE != "":
		return checkSPIFFE(r.SPIFFE)
	}
	return nil
}

func nearestIssuer(typed string, issuers map[string]int) string {
	var names []string
	for name := range issuers {
		names = append(names, name)
	}
	slices.Sort(names)
	if near := settings.Nearest(typed, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; define it under issuers"
}

// host matches a host name, or a wildcard for all hosts of a domain.
var host = regexp.MustCompile(`^(\*\.)?([a-z0-9_-]+\.)*[a-z0-9_-]+$`)

func validHost(name string) bool { return host.MatchString(name) }

// checkSPIFFE rejects text that is neither a SPIFFE ID nor a pattern for SPIFFE IDs.
func checkSPIFFE(text string) error {
	_, err := spiffeid.FromString(strings.TrimSuffix(text, "/*"))
	if err != nil {
		return fmt.Errorf("spiffe %q: %w; write spiffe://DOMAIN/PATH, spiffe://DOMAIN/PATH/* or "+
			"spiffe://DOMAIN/*", text, err)
	}
	return nil
}
