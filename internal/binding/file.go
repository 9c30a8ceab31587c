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

// algorithms are those that a token of an issuer may be signed with. All of them have a key that
// is public: with a key that both signs and checks, every program that knows it makes
// tokens.
var algorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

// file is what a file of --auth-config says.
type file struct {
	// CommonNames says that the common name of a certificate is a user where no rule fits.
	CommonNames bool             `yaml:"common-names"`
	Issuers     []issuerSettings `yaml:"issuers"`
	Bindings    []rule           `yaml:"bindings"`
}

// issuerSettings says whose tokens count, and which of them.
type issuerSettings struct {
	Line int `yaml:",line"`
	// Name is what rules call the issuer, and what the names of its principals begin with.
	Name string `yaml:"name"`
	// URL is the issuer as its tokens name it. Its discovery document is below it, so it may be any
	// text if there are KeysURL or KeysFile.
	URL string `yaml:"url"`
	// Audiences are the names of this cluster: a token must be for one of them.
	Audiences []string `yaml:"audiences"`
	// KeysURL and KeysFile are where its keys are, if not where the discovery document says.
	KeysURL  string `yaml:"keys-url"`
	KeysFile string `yaml:"keys-file"`
	// CAFile has the authorities of its URLs, if they are not the system's.
	CAFile     string   `yaml:"ca-file"`
	Algorithms []string `yaml:"algorithms"`
	// Leeway is by how much the clocks of the issuer and of this member may be apart.
	Leeway *time.Duration `yaml:"clock-leeway"`
	// Refresh is how old the keys may become before they are fetched again.
	Refresh time.Duration `yaml:"refresh"`
	// NameClaim is the claim that tells the subjects of the issuer apart.
	NameClaim string `yaml:"name-claim"`
}

// rule binds the callers that fit it to a user, or to roles.
type rule struct {
	Line int `yaml:",line"`
	// One of these says whose rule it is: a SPIFFE ID, or all below a path or in a trust domain if
	// it ends in "/*"; the name of a host, or all hosts of a domain if it begins with "*."; the name
	// of an issuer.
	SPIFFE string `yaml:"spiffe"`
	DNS    string `yaml:"dns"`
	Issuer string `yaml:"issuer"`
	// Claims are what a token must say, all of it. A value that ends in "*" is the beginning of one.
	Claims map[string]string `yaml:"claims"`

	User  string   `yaml:"user"`
	Roles []string `yaml:"roles"`
}

// Bounds of what a file may say.
const (
	defaultLeeway  = 30 * time.Second
	maxLeeway      = 5 * time.Minute
	defaultRefresh = 5 * time.Minute
	minRefresh     = 10 * time.Second
)

// readFile reads a file of --auth-config.
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

// parse reads the text of a file. Its error begins with the line.
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
			return nil, atLine(s.Line, fmt.Errorf("the issuer in line %d has the same name or url", line))
		}
		names[s.Name], urls[s.URL] = s.Line, s.Line
	}
	if len(f.Bindings) == 0 {
		// A file that is being written may be empty for a moment.
		return nil, errors.New(": there are no bindings; leave out --auth-config if none are " +
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

// fill sets what a file does not say.
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

// issuerName is what an issuer may be called: the colon after it ends it.
var issuerName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

// reserved are what other principals' names begin with.
var reserved = []string{"dns", "spiffe"}

func (s *issuerSettings) check() error {
	switch {
	case !issuerName.MatchString(s.Name) || slices.Contains(reserved, s.Name):
		return fmt.Errorf("an issuer needs a name of small letters, digits, dots and dashes, other "+
			"than %s, not %q", strings.Join(reserved, " and "), s.Name)
	case s.URL == "":
		return fmt.Errorf("issuer %s needs its url, as in the claim iss of its tokens", s.Name)
	case len(s.Audiences) == 0 || slices.Contains(s.Audiences, ""):
		return fmt.Errorf("issuer %s needs audiences: the names of this cluster in its "+
			"tokens", s.Name)
	case s.KeysURL != "" && s.KeysFile != "":
		return fmt.Errorf("issuer %s has keys-url and keys-file; leave one of them out", s.Name)
	case *s.Leeway < 0 || *s.Leeway > maxLeeway:
		return fmt.Errorf("clock-leeway of issuer %s must be from 0s to %s", s.Name, maxLeeway)
	case s.Refresh < minRefresh:
		return fmt.Errorf("refresh of issuer %s must be at least %s", s.Name, minRefresh)
	case len(s.Algorithms) == 0:
		return fmt.Errorf("algorithms of issuer %s is empty; leave it out for all", s.Name)
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

// checkURL refuses an address from which anybody on the way could give out keys.
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
	return fmt.Errorf("the URL %q must begin with https:// (http:// is for this machine alone)", text)
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
		return errors.New("a binding needs one of spiffe, dns and issuer")
	case (r.User == "") == (r.Roles == nil):
		return errors.New("a binding needs either user or roles")
	case r.Roles != nil && (len(r.Roles) == 0 || slices.Contains(r.Roles, "")):
		return errors.New("a binding needs the names of roles")
	case r.Issuer == "" && r.Claims != nil:
		return errors.New("claims are those of the tokens of an issuer; name it, with issuer")
	case r.Issuer != "" && issuers[r.Issuer] == 0:
		return fmt.Errorf("there is no issuer %q%s", r.Issuer, nearIssuer(r.Issuer, issuers))
	case r.DNS != "" && !validHost(r.DNS):
		return fmt.Errorf("dns %q is not the name of a host, such as a.example.com or *.example.com",
			r.DNS)
	case r.SPIFFE != "":
		return checkSPIFFE(r.SPIFFE)
	}
	return nil
}

func nearIssuer(typed string, issuers map[string]int) string {
	var names []string
	for name := range issuers {
		names = append(names, name)
	}
	slices.Sort(names)
	if near := settings.Nearest(typed, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; describe it under issuers"
}

// host is the name of one, or what stands for all of a domain.
var host = regexp.MustCompile(`^(\*\.)?([a-z0-9_-]+\.)*[a-z0-9_-]+$`)

func validHost(name string) bool { return host.MatchString(name) }

// checkSPIFFE refuses what is no SPIFFE ID and does not stand for several.
func checkSPIFFE(text string) error {
	_, err := spiffeid.FromString(strings.TrimSuffix(text, "/*"))
	if err != nil {
		return fmt.Errorf("spiffe %q: %w; write spiffe://DOMAIN/PATH, spiffe://DOMAIN/PATH/* or "+
			"spiffe://DOMAIN/*", text, err)
	}
	return nil
}
