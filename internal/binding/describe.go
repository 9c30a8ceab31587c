package binding

import (
	"crypto/sha256"
	"encoding/hex"

	pb "leasehold.dev/api/leasehold/v1"
)

// Describe fills in a response with the rules in effect and, if the current file has an error, that
// error. The response contains no secrets: the file has none, and the keys are public.
func (b *Bindings) Describe(m *pb.ListBindingsResponse) {
	if m.CommonNames = b.CommonNames(); b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	sum, r := sha256.Sum256(b.text), b.now.Load()
	m.File, m.Sha256, m.LoadedUnixMs = b.path, hex.EncodeToString(sum[:]), b.loaded.UnixMilli()
	m.CommonNames, m.LoadError = r.CommonNames, b.failed
	for i := range r.Issuers {
		s := &r.Issuers[i]
		m.Issuers = append(m.Issuers, &pb.Issuer{
			Name: s.Name, Url: s.URL, Audiences: s.Audiences, NameClaim: s.NameClaim,
		})
	}
	for i := range r.Bindings {
		x := &r.Bindings[i]
		m.Bindings = append(m.Bindings, &pb.Binding{
			Spiffe: x.SPIFFE, Dns: x.DNS, Issuer: x.Issuer, Claims: x.Claims,
			User: x.User, Roles: x.Roles,
		})
	}
}
