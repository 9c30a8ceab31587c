package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Grant describes a lease to be granted, or the lease of a session to be opened (see
// [Client.Open]). It is a [store.Op]. In a transaction it needs an ID (see [leases.NewID]) and has
// no Keys.
type Grant struct {
	// TTL is the lifetime of the lease after its grant and after each renewal. It is rounded up to
	// whole milliseconds.
	TTL time.Duration
	// ID is the ID of the lease. If it is 0, the server chooses one.
	ID lease.ID
	// Name is the name of the lease, or empty. At most one live lease can have a given name.
	Name string
	// Owner is a label chosen by the program, such as its host name. It is shown to operators, and
	// to programs that find a name or a lock taken.
	Owner  string
	Labels map[string]string
	// RequestID makes a grant idempotent. If the same owner repeats the grant while the lease is
	// alive, the existing lease is returned and renewed. If RequestID is empty, [Client.Grant]
	// generates one.
	RequestID string
	// LockDelay is how long the name and the keys stay taken after the lease has expired.
	LockDelay time.Duration
	// KeepKeys makes expiry detach the keys instead of deleting them.
	KeepKeys bool
	// Keys are written together with the grant. Only Key and Value are used. Do not modify a Value
	// afterwards (see [store.Put]).
	Keys []store.KV
	// Resumable makes the grant return a secret. See [Client.Resume].
	Resumable bool
	// Grace is how long the client keeps trying to renew the lease after it has stopped being
	// valid. During that time its error is [ErrJeopardy]: the lease may have ended, or may become
	// valid again. 0 means Config.Grace, and a negative value means no grace.
	Grace time.Duration

	holds []keyrange.Range // what the holder may cache while the lease is valid
}

func (g Grant) message() *pb.GrantRequest {
	m := &pb.GrantRequest{}
	g.write(m)
	return m
}

// write fills a new message from the grant.
func (g *Grant) write(m *pb.GrantRequest) {
	m.Id, m.TtlMs, m.Name, m.Owner = int64(g.ID), msUp(g.TTL), g.Name, g.Owner
	m.Labels, m.RequestId = maps.Clone(g.Labels), g.RequestID
	m.LockDelayMs, m.Resumable = msUp(g.LockDelay), g.Resumable
	if g.KeepKeys {
		m.AtExpiry = pb.AtExpiry_AT_EXPIRY_KEEP
	}
	for _, kv := range g.Keys {
		m.Keys = append(m.Keys, &pb.Pair{Key: []byte(kv.Key), Value: kv.Value})
	}
	m.Holds = rangeMessages(g.holds)
}

// Granted is a lease that has been granted but that no client keeps alive yet.
type Granted struct {
	leases.Info
	// Secret is set if the lease is resumable and this request created it.
	Secret []byte
	// Existed is true if an earlier request with the same request ID created the lease.
	Existed bool

	sent   moment // just before the request was sent
	ending *ending
	// over is leases.HandedOver or leases.Resumed if the lease was taken over from a previous
	// holder, and 0 if it was granted.
	over leases.Kind
}

// grantedOf converts the answer to a grant. sent is a time before the grant was sent.
func grantedOf(m *pb.GrantResponse, sent moment) *Granted {
	return &Granted{
		Info: infoOf(m.GetLease()), Secret: m.GetSecret(), Existed: m.GetExisted(), sent: sent,
	}
}

func infoOf(m *pb.Lease) leases.Info {
	i := leases.Info{
		ID: lease.ID(m.GetId()), Token: lease.Token(m.GetToken()),
		TTL: duration(m.GetTtlMs()), Remaining: duration(m.GetRemainingMs()),
		Name: m.GetName(), Owner: m.GetOwner(), Labels: m.GetLabels(), Principal: m.GetPrincipal(),
		LockDelay: duration(m.GetLockDelayMs()),
		KeepKeys:  m.GetAtExpiry() == pb.AtExpiry_AT_EXPIRY_KEEP,
		Delayed:   m.GetDelayed(), Bound: m.GetBound(), KeyCount: m.GetKeyCount(),
	}
	for _, k := range m.GetKeys() {
		i.Keys = append(i.Keys, string(k))
	}
	for _, r := range heldOf(m.GetHolds()) {
		i.Holds = append(i.Holds, store.KeyRange(r))
	}
	return i
}

// Grant grants a lease and keeps it alive until it is revoked, closed, handed over or lost. If the
// name is taken, Grant returns a [TakenError]. If the context ends first, the cluster may still
// grant the lease. That lease ends after its TTL, because no client keeps it alive.
func (c *Client) Grant(ctx context.Context, g Grant) (*Lease, error) {
	granted, err := c.GrantOnly(ctx, g)
	if err != nil {
		return nil, err
	}
	return c.Keep(granted, g.Grace)
}

// GrantOnly grants a lease without keeping it alive.
func (c *Client) GrantOnly(ctx context.Context, g Grant) (*Granted, error) {
	if g.RequestID == "" {
		g.RequestID = rand.Text()
	}
	a := &ask[pb.Request_Grant, pb.GrantRequest]{
		spec: spec{op: "grant", on: g.Name, kind: repeated},
	}
	g.write(&a.message)
	a.body.Grant, a.request.Body = &a.message, &a.body
	resp, sent, err := c.timed(ctx, &a.spec, &a.request)
	if err != nil {
		return nil, err
	}
	return c.endings.follow(grantedOf(resp.GetGrant(), sent)), nil
}

// Keep keeps alive a lease that this client, or another client in the process, has granted with
// [Client.GrantOnly] or in a transaction. grace has the same meaning as in [Grant]. Keep fails with
// [ErrExpired] if the lease has no time left.
//
// Keep fails with [ErrReleased], [ErrHandedOver] or [ErrLost] if a Lease made from this Granted has
// ended for that reason, or if the granting client revoked the lease by a [leases.Ref]. It also
// fails if this client holds the lease under a later token; the [LostError] describes how the
// client got that token. If Keep succeeds, any older [Lease] with the same ID has ended.
func (c *Client) Keep(g *Granted, grace time.Duration) (*Lease, error) {
	if grace == 0 {
		grace = c.grace
	}
	return c.keeper.add(c, g, max(grace, 0))
}

// Resume makes this client the holder of a resumable lease, given its secret, and keeps the lease
// alive. The lease gets a new token. The old token becomes invalid, and its holder loses the lease.
// grace has the same meaning as in [Grant].
func (c *Client) Resume(
	ctx context.Context, ref leases.Ref, secret []byte, grace time.Duration,
) (*Lease, error) {
	s := &spec{op: fmt.Sprintf("resume %s", ref), kind: numbered}
	r, sent, err := c.timed(ctx, s, &pb.Request{Body: &pb.Request_Resume{
		Resume: &pb.ResumeRequest{Id: int64(ref.ID), Name: ref.Name, Secret: secret},
	}})
	if err != nil {
		return nil, err
	}
	return c.Keep(&Granted{
		Info: infoOf(r.GetResume().GetLease()), sent: sent, over: leases.Resumed,
	}, grace)
}

// Revoke ends leases and deletes their keys. It tries every lease and joins the errors. The error
// for a lease that does not exist is [ErrLeaseNotFound]. For the program, leases that this client
// keeps alive end before the request is sent. Revoke sends at most 10,000 leases in one request. It
// resolves each Name first, so that a retried request cannot end a lease that acquires the name
// later.
func (c *Client) Revoke(ctx context.Context, refs ...leases.Ref) error {
	refs, failed := c.identified(ctx, refs)
	for _, r := range refs {
		c.endings.note(r, ErrReleased)
		c.keeper.giveUp(r, ErrReleased)
	}
	for some := range slices.Chunk(refs, maxRevoked) {
		failed = append(failed, c.revoke(ctx, some)...)
	}
	return fault.Join(failed...)
}

// identified resolves all references to IDs. It also returns the errors for the references that it
// cannot resolve.
func (c *Client) identified(
	ctx context.Context, refs []leases.Ref,
) (out []leases.Ref, failed []error) {
	if !slices.ContainsFunc(refs, func(r leases.Ref) bool { return r.Name != "" }) {
		return refs, nil
	}
	for _, r := range refs {
		if r.Name == "" {
			out = append(out, r)
			continue
		}
		i, err := c.Describe(ctx, leases.Ref{Name: r.Name})
		if err == nil && (r.ID != 0 && r.ID != i.ID || r.Token != 0 && r.Token != i.Token) {
			err = fmt.Errorf("client: revoke lease %q: %w", r.Name, ErrLeaseNotFound)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		out = append(out, leases.Ref{ID: i.ID, Token: i.Token})
	}
	return out, failed
}

// maxRevoked is the maximum number of leases that a member revokes in one call.
const maxRevoked = 10_000

func (c *Client) revoke(ctx context.Context, refs []leases.Ref) []error {
	v := &revocation{left: refs, tried: make(map[leases.Ref]bool)}
	s := &spec{op: "revoke", kind: repeated}
	err := c.retry(ctx, s, func(l *link) error {
		resp, err := c.attempt(ctx, l, s, v.message())
		if err == nil {
			return v.take(resp.GetRevoke().GetResults())
		}
		var broken *linkError
		if errors.As(err, &broken) && broken.sent || errors.Is(err, ErrUnknownOutcome) {
			for _, r := range v.left {
				v.tried[r] = true
			}
		}
		return err
	})
	return append(v.failed, err)
}

// revocation is the state of a Revoke in progress.
type revocation struct {
	left   []leases.Ref
	tried  map[leases.Ref]bool // leases that an earlier attempt may have revoked
	failed []error
}

func (v *revocation) message() *pb.Request {
	m := &pb.RevokeRequest{Leases: make([]*pb.LeaseRef, len(v.left))}
	for i, r := range v.left {
		m.Leases[i] = refMessage(r)
	}
	return &pb.Request{Body: &pb.Request_Revoke{Revoke: m}}
}

// take processes the results of an attempt. It returns an error if some leases must be retried.
func (v *revocation) take(results []*pb.RevokeResult) error {
	var left []leases.Ref
	var again error
	for i, r := range results {
		ref := v.left[i]
		switch {
		case r.Reason == pb.Reason_REASON_UNSPECIFIED:
		case r.Reason == pb.Reason_REASON_LEASE_NOT_FOUND && v.tried[ref]:
		case r.Reason == pb.Reason_REASON_UNAVAILABLE:
			left = append(left, ref)
			if again == nil { // do not hide an unknown outcome
				again = ErrUnavailable
			}
		case r.Reason == pb.Reason_REASON_UNKNOWN_OUTCOME:
			v.tried[ref] = true
			left, again = append(left, ref), ErrUnknownOutcome
		default:
			v.failed = append(v.failed,
				fmt.Errorf("client: revoke lease %016x: %w", ref.ID, reasonError(r.Reason)))
		}
	}
	v.left = left
	return again
}

// Describe returns all information about a lease except its keys, linearizably. r identifies the
// lease by ID or by Name. If r.Token is set as well, the lease must have that token.
func (c *Client) Describe(ctx context.Context, r leases.Ref) (leases.Info, error) {
	return c.describe(ctx, r, false)
}

// DescribeKeys is like Describe, but also returns the attached keys.
func (c *Client) DescribeKeys(ctx context.Context, r leases.Ref) (leases.Info, error) {
	return c.describe(ctx, r, true)
}

func (c *Client) describe(ctx context.Context, r leases.Ref, keys bool) (leases.Info, error) {
	s := &spec{op: fmt.Sprintf("describe %s", r), kind: read}
	resp, err := c.do(ctx, s, &pb.Request{Body: &pb.Request_Describe{
		Describe: &pb.DescribeRequest{Id: int64(r.ID), Name: r.Name, Keys: keys},
	}})
	if err != nil {
		return leases.Info{}, err
	}
	info := infoOf(resp.GetDescribe().GetLease())
	if r.Token != 0 && r.Token != info.Token {
		return leases.Info{}, s.fail(ErrLeaseNotFound, nil)
	}
	return info, nil
}

// List yields leases, requesting them page by page. It stops after an error.
func (c *Client) List(ctx context.Context, f leases.Filter) iter.Seq2[leases.Info, error] {
	f.Labels = maps.Clone(f.Labels)
	return func(yield func(leases.Info, error) bool) {
		for page := ""; ; {
			r, err := c.do(ctx, &spec{op: "list", kind: read}, &pb.Request{
				Body: &pb.Request_List{List: listRequest(f, page)},
			})
			if err != nil {
				yield(leases.Info{}, err)
				return
			}
			for _, m := range r.GetList().GetLeases() {
				if !yield(infoOf(m), nil) {
					return
				}
			}
			if page = r.GetList().GetNextPageToken(); page == "" {
				return
			}
		}
	}
}

func listRequest(f leases.Filter, page string) *pb.ListRequest {
	r := &pb.ListRequest{
		NamePrefix: f.NamePrefix, Owner: f.Owner, Labels: f.Labels, Keys: f.Keys,
		PageToken: page,
	}
	for _, id := range f.IDs {
		r.Ids = append(r.Ids, int64(id))
	}
	return r
}

// Attach attaches keys to a lease, in one revision. A key that was attached to another lease moves.
// The keys must exist and keep their values.
func (c *Client) Attach(ctx context.Context, r leases.Ref, keys ...string) error {
	s := &spec{op: fmt.Sprintf("attach to %s", r), kind: numbered}
	_, err := c.do(ctx, s, &pb.Request{Body: &pb.Request_Attach{
		Attach: &pb.AttachRequest{Lease: refMessage(r), Keys: bytesOf(keys)},
	}})
	return err
}

// Detach detaches keys from a lease, in one revision. The keys keep their values. A key that is not
// attached to this lease counts as not found. The zero Ref matches any lease.
func (c *Client) Detach(ctx context.Context, r leases.Ref, keys ...string) error {
	req := &pb.DetachRequest{Keys: bytesOf(keys)}
	if r != (leases.Ref{}) {
		req.Lease = refMessage(r)
	}
	s := &spec{op: fmt.Sprintf("detach from %s", r), kind: numbered}
	_, err := c.do(ctx, s, &pb.Request{Body: &pb.Request_Detach{Detach: req}})
	return err
}

// CheckLease reports, linearizably, whether r.Token is the token of the live lease with r's ID or
// Name. It also returns the lease's current token, or 0 if the lease does not exist. It is intended
// for resources that cannot store the highest token they have seen.
//
// CheckLease accepts only the tokens of leases ([Lease.Token]). A lock or an election draws a token
// for each holder, because one lease can hold many locks. Use the Condition method of the lock or
// the leadership instead.
func (c *Client) CheckLease(
	ctx context.Context, r leases.Ref,
) (valid bool, current lease.Token, err error) {
	s := &spec{op: fmt.Sprintf("check %s", r), kind: read}
	resp, err := c.do(ctx, s, &pb.Request{Body: &pb.Request_CheckToken{
		CheckToken: &pb.CheckTokenRequest{Id: int64(r.ID), Name: r.Name, Token: uint64(r.Token)},
	}})
	m := resp.GetCheckToken()
	return m.GetValid(), lease.Token(m.GetCurrent()), err
}
