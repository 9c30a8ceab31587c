package native

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
	pb "leasehold.dev/leaseholdpb"
)

// Grant implements pb.LeasesServer.
func (s *leases) Grant(ctx context.Context, r *pb.GrantRequest) (*pb.GrantResponse, error) {
	if err := s.checkGrant(r); err != nil {
		return nil, err
	}
	terms := termsOf(r)
	secret := s.secret(r.Resumable, &terms)
	info, res, err := s.grant(ctx, r, terms)
	if err != nil {
		return nil, err
	}
	resp := &pb.GrantResponse{
		Header:  s.header(s.node.View(), res.Revision),
		Lease:   api.LeaseMessage(info),
		Existed: existed(&res),
	}
	resp.Lease.RemainingMs = resp.Lease.TtlMs
	if !resp.Existed {
		resp.Secret = secret
		return resp, nil
	}
	return resp, s.remaining(ctx, resp.Lease)
}

func (s *leases) checkGrant(r *pb.GrantRequest) error {
	if r.Id < 0 {
		return invalid("id must be above zero, or 0 for one that the server chooses, not %d", r.Id)
	}
	if err := s.checkTTL(r.TtlMs); err != nil {
		return err
	}
	if d := lease.TTL(r.LockDelayMs); d < 0 || d > maxTTL {
		return invalid("lock_delay_ms %d is not within 0 and %d", d, maxTTL)
	}
	if _, ok := pb.AtExpiry_name[int32(r.AtExpiry)]; !ok {
		return invalid("at_expiry %d is not known", r.AtExpiry)
	}
	for _, t := range [...][2]string{
		{"name", r.Name}, {"owner", r.Owner}, {"request_id", r.RequestId},
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
	return checkLabels(r.Labels)
}

func termsOf(r *pb.GrantRequest) lease.Terms {
	return lease.Terms{
		ID: lease.ID(r.Id), TTL: lease.TTL(r.TtlMs),
		Name: r.Name, Owner: r.Owner, RequestID: r.RequestId, Labels: r.Labels,
		LockDelay: lease.TTL(r.LockDelayMs), KeepKeys: r.AtExpiry == pb.AtExpiry_AT_EXPIRY_KEEP,
	}
}

// secret draws a secret, if one is wanted, and puts its hash into the terms. Nothing but
// the answer to the client ever has the secret itself.
func (s *leases) secret(wanted bool, t *lease.Terms) []byte {
	if !wanted {
		return nil
	}
	secret := make([]byte, secretBytes)
	_, _ = crand.Read(secret) // never fails
	t.Secret = sha256.Sum256(secret)
	return secret
}

const secretBytes = 32

// grant grants a lease. If the client left the ID to us and it is in use, which is
// unlikely, it tries others.
func (s *leases) grant(
	ctx context.Context, r *pb.GrantRequest, t lease.Terms,
) (*lease.Info, fsm.Result, error) {
	for try := uint64(0); ; try++ {
		if r.Id == 0 {
			t.ID = chooseID(&t, try)
		}
		res, err := s.propose(ctx, grantCommand(t, r.Keys))
		switch {
		case err == nil:
			return granted(&res), res, nil
		case !errors.Is(err, lease.ErrExists):
			return nil, res, err
		case r.Id != 0:
			return nil, res, s.holderOf(ctx, t.ID, err)
		}
	}
}

// chooseID makes an ID: apply draws no random numbers. That of a request which may be
// repeated follows from the request, so that the repetition finds the lease even if it has
// no name (T3).
func chooseID(t *lease.Terms, try uint64) lease.ID {
	if t.RequestID == "" {
		return lease.ID(1 + rand.Int64N(1<<63-1))
	}
	var b []byte
	for _, text := range [...]string{t.Owner, t.Name, t.RequestID} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	sum := sha256.Sum256(binary.AppendUvarint(b, try))
	return lease.ID(max(1, binary.BigEndian.Uint64(sum[:])>>1))
}

// grantCommand grants a lease and puts its keys, in one step. What may be a repetition
// puts keys only if neither the ID nor the name is in use; otherwise the grant alone finds
// out what that means.
func grantCommand(t lease.Terms, keys []*pb.Pair) fsm.Command {
	grant := &fsm.Grant{Terms: t}
	if len(keys) == 0 && t.RequestID == "" {
		return grant
	}
	txn := &fsm.Txn{Then: []fsm.Op{{Grant: grant}}}
	for _, p := range keys {
		put := &fsm.Put{Key: string(p.Key), Value: p.Value, Lease: t.ID}
		txn.Then = append(txn.Then, fsm.Op{Put: put})
	}
	if t.RequestID == "" {
		return txn
	}
	txn.Else = []fsm.Op{{Grant: grant}}
	txn.Compare = []fsm.Compare{{
		Target: fsm.TargetLeaseAlive, Relation: fsm.NotEqual, Number: int64(t.ID),
	}}
	if t.Name != "" {
		txn.Compare = append(txn.Compare, fsm.Compare{
			Target: fsm.TargetNameToken, Relation: fsm.Equal, Key: t.Name,
		})
	}
	return txn
}

// granted is the lease that a grantCommand returned.
func granted(res *fsm.Result) *lease.Info {
	if txn, ok := res.Value.(*fsm.TxnResult); ok {
		return txn.Responses[0].(*lease.Info)
	}
	return res.Value.(*lease.Info)
}

// existed reports whether the lease of a grantCommand was there before.
func existed(res *fsm.Result) bool {
	txn, ok := res.Value.(*fsm.TxnResult)
	return ok && !txn.Succeeded
}

// remaining asks the leader what is left of a lease that was there.
func (s *leases) remaining(ctx context.Context, m *pb.Lease) error {
	return s.node.InspectLeases(ctx, []lease.ID{lease.ID(m.Id)},
		func(_ *lease.Lessor, left []replica.Left) { m.RemainingMs = int64(left[0].TTL) })
}

// holderOf adds to the refusal of an ID who has it, if that can still be told.
func (s *leases) holderOf(ctx context.Context, id lease.ID, refusal error) error {
	var info lease.Info
	found := false
	err := s.node.Inspect(ctx, func(l *lease.Lessor) { info, found = l.Lookup(id) })
	if err != nil || !found {
		return refusal
	}
	return &api.HolderError{Err: refusal, Holder: info}
}
