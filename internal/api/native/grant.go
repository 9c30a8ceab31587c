package native

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// granting is a grant in progress.
type granting struct {
	*leases
	request *pb.GrantRequest
	terms   lease.Terms
	secret  []byte
}

// granting checks a request and generates an ID if the client did not choose one.
func (s *leases) granting(ctx context.Context, r *pb.GrantRequest) (*granting, error) {
	if err := s.checkGrant(r); err != nil {
		return nil, err
	}
	principal, err := s.authorizer(ctx).principal(r.Principal)
	if err != nil {
		return nil, err
	}
	g := &granting{leases: s, request: r, terms: s.terms(r)}
	g.terms.Principal = principal
	g.secret = s.secret(r.Resumable, &g.terms)
	if r.Id == 0 {
		g.terms.ID = chooseID(&g.terms, 0)
	}
	return g, nil
}

func (g *granting) command() fsm.Command { return grantCommand(g.terms, g.request) }

// finish creates the response from the outcome of the command.
//
// The ID that the member generated may already be in use, although that is unlikely. If so, finish
// tries other IDs. These proposals are not numbered, because the number already has an outcome.
//
// If the request repeats an earlier number, the result is the stored outcome of the first attempt.
// The lease's TTL has been running since then, so finish renews the lease first.
func (g *granting) finish(
	ctx context.Context, res *fsm.Result, err error,
) (*pb.GrantResponse, error) {
	for try := uint64(1); errors.Is(err, lease.ErrExists) && g.request.Id == 0; try++ {
		g.terms.ID = chooseID(&g.terms, try)
		*res, err = g.propose(ctx, g.command())
	}
	switch {
	case errors.Is(err, lease.ErrExists):
		return nil, g.holderOf(ctx, g.terms.ID, err)
	case err != nil:
		return nil, err
	case res.Repeated:
		resp := g.response(g.node.View(), res)
		return resp, g.renewListed(ctx, resp.Lease)
	}
	return g.response(g.node.View(), res), nil
}

// answer implements answerer.
func (g *granting) answer(v *fsm.View, res *fsm.Result) (proto.Message, error) {
	return g.response(v, res), nil
}

// response returns the response for a granted lease.
func (g *granting) response(v *fsm.View, res *fsm.Result) *pb.GrantResponse {
	info, existed := granted(res.Value)
	out := new(struct { // combined into one allocation
		message pb.GrantResponse
		header  pb.Header
		lease   pb.Lease
	})
	resp := &out.message
	g.fillHeader(&out.header, v, res.Revision)
	fillFresh(&out.lease, info)
	resp.Header, resp.Lease, resp.Existed = &out.header, &out.lease, existed
	if !existed && !res.Repeated {
		resp.Secret = g.secret
	}
	return resp
}

// fresh converts a lease whose TTL has just restarted.
func fresh(info *lease.Info) *pb.Lease {
	m := new(pb.Lease)
	fillFresh(m, info)
	return m
}

func fillFresh(m *pb.Lease, info *lease.Info) {
	api.FillLease(m, info)
	m.RemainingMs = m.TtlMs
}

func (s *leases) grantJob(ctx context.Context, r *pb.GrantRequest) (job, error) {
	g, err := s.granting(ctx, r)
	if err != nil {
		return job{}, err
	}
	return job{
		command: g.command(),
		answer:  g,
		rest:    g,
	}, nil
}

// rest implements rester.
func (g *granting) rest(res *fsm.Result, err error) steps {
	repeated := err == nil && res.Repeated
	if !repeated && !errors.Is(err, lease.ErrExists) {
		return nil
	}
	return func(ctx context.Context) (proto.Message, error) {
		return g.finish(ctx, res, err)
	}
}

func (s *leases) checkGrant(r *pb.GrantRequest) error {
	if r.Id < 0 {
		return invalid("id must be positive, or 0 to let the server choose one, not %d", r.Id)
	}
	ttl := s.ttl(r)
	if err := s.checkTTL(int64(ttl)); err != nil {
		return err
	}
	if d := lease.TTL(r.LockDelayMs); d < 0 || d > maxTTL {
		return invalid("lock_delay_ms must be between 0 and %d, not %d", maxTTL, d)
	}
	if _, ok := pb.AtExpiry_name[int32(r.AtExpiry)]; !ok {
		return invalid("at_expiry %d is unknown", r.AtExpiry)
	}
	for _, t := range [...][2]string{
		{"name", r.Name}, {"owner", r.Owner}, {"request_id", r.RequestId}, {"principal", r.Principal},
	} {
		if err := checkText(t[0], t[1]); err != nil {
			return err
		}
	}
	keys := make([][]byte, len(r.Keys))
	for i, p := range r.Keys {
		keys[i] = p.GetKey()
	}
	if len(keys) > s.o.MaxKeys {
		return &lease.KeyLimitError{ID: lease.ID(r.Id), Limit: s.o.MaxKeys}
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	if err := fsm.CheckHolds(rangesOf(r.Holds), ttl, s.o.MaxCacheTTL); err != nil {
		return err
	}
	return checkLabels(r.Labels)
}

// ttl returns the TTL of a request. For a lease that holds ranges, the client may let the server
// choose it.
func (s *leases) ttl(r *pb.GrantRequest) lease.TTL {
	if r.TtlMs == 0 && len(r.Holds) > 0 {
		return min(usualCacheTTL, s.o.MaxCacheTTL)
	}
	return lease.TTL(r.TtlMs)
}

func (s *leases) terms(r *pb.GrantRequest) lease.Terms {
	t := api.GrantTerms(r)
	t.TTL = s.ttl(r)
	return t
}

// secret generates a secret if one is wanted and stores its hash in the terms. The secret itself
// appears only in the response to the client.
func (s *leases) secret(wanted bool, t *lease.Terms) []byte {
	if !wanted {
		return nil
	}
	secret := make([]byte, secretBytes)
	_, _ = crand.Read(secret) // never returns an error
	t.Secret = sha256.Sum256(secret)
	return secret
}

const secretBytes = 32

// chooseID chooses a lease ID here, because apply must not generate random numbers. A request with
// a request ID may be repeated, so its lease ID is derived from the request. The repeated request
// can then find the lease even if the lease has no name (T3).
func chooseID(t *lease.Terms, try uint64) lease.ID {
	if t.RequestID == "" {
		return lease.ID(1 + rand.Int64N(1<<63-1))
	}
	b := make([]byte, 0, 128)
	for _, text := range [...]string{t.Owner, t.Name, t.RequestID} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	b = append(b, t.Principal...)
	sum := sha256.Sum256(binary.AppendUvarint(b, try))
	return lease.ID(max(1, binary.BigEndian.Uint64(sum[:])>>1))
}

// grantCommand returns the command that grants a lease and puts its keys. If the request has an ID
// and was already granted, the command renews the lease without putting any keys.
func grantCommand(t lease.Terms, r *pb.GrantRequest) fsm.Command {
	g := fsm.Grant{Terms: t, Holds: rangesOf(r.Holds)}
	puts := make([]*fsm.Put, len(r.Keys))
	for i, p := range r.Keys {
		puts[i] = &fsm.Put{Key: string(p.Key), Value: p.Value, Lease: t.ID}
	}
	if t.RequestID != "" {
		return g.Repeatable(puts...) // Repeatable copies g
	}
	grant := &fsm.Grant{Terms: g.Terms, Holds: g.Holds}
	if len(puts) == 0 {
		return grant
	}
	txn := &fsm.Txn{Then: []fsm.Op{{Grant: grant}}}
	for _, p := range puts {
		txn.Then = append(txn.Then, fsm.Op{Put: p})
	}
	return txn
}

// granted returns the lease from the result of grantCommand, and reports whether the lease already
// existed.
func granted(value any) (info *lease.Info, existed bool) {
	if txn, ok := value.(*fsm.TxnResult); ok {
		value = txn.Responses[0]
	}
	return fsm.GrantResult(value)
}

// renewListed renews the leases in a response, using their tokens. It sets the remaining time of
// each lease to its TTL, or to 0 if the lease has ended (T28).
func (s *leases) renewListed(ctx context.Context, list ...*pb.Lease) error {
	refs := make([]*pb.LeaseRef, len(list))
	for i, m := range list {
		refs[i] = &pb.LeaseRef{Id: m.Id, Token: m.Token}
	}
	resp, err := s.renew(ctx, &pb.RenewRequest{Leases: refs}, nil, nil)
	if err != nil {
		return err
	}
	for i, r := range resp.Results {
		switch r.Reason {
		case pb.Reason_REASON_UNSPECIFIED:
			list[i].TtlMs, list[i].RemainingMs = r.TtlMs, r.TtlMs
		case pb.Reason_REASON_LEASE_NOT_FOUND:
			list[i].RemainingMs = 0
		default:
			return api.ErrTimeout
		}
	}
	return nil
}

// holderOf adds the lease that holds the ID to a refused grant. It does so only if the lease still
// exists and the caller may see it.
func (s *leases) holderOf(ctx context.Context, id lease.ID, refusal error) error {
	var info lease.Info
	found := false
	err := s.node.Inspect(ctx, func(l *lease.Lessor) { info, found = l.Lookup(id) })
	if err != nil || !found || !s.authorizer(ctx).maySee(&info) {
		return refusal
	}
	return &api.HolderError{Err: refusal, Holder: info}
}
