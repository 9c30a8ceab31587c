package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/queue"
	"leasehold.dev/test/rig"
)

// TestReleaseAfterContext checks that releasing any hold with a context that has ended returns
// immediately, and that Close waits for the cluster's response.
func TestReleaseAfterContext(t *testing.T) {
	const ttl = time.Minute
	session := func(ctx context.Context, c *client.Client) *client.Session {
		return rig.Must[*client.Session](t)(c.Open(ctx, client.Grant{TTL: ttl}))
	}
	for name, acquire := range map[string]func(context.Context, *client.Client) (client.Hold, error){
		"mutex": func(ctx context.Context, c *client.Client) (client.Hold, error) {
			return lock.NewMutex(session(ctx, c), "m").Lock(ctx)
		},
		"session": func(ctx context.Context, c *client.Client) (client.Hold, error) {
			return session(ctx, c), nil
		},
		"member": func(ctx context.Context, c *client.Client) (client.Hold, error) {
			return members.New(c, "g").Register(ctx, session(ctx, c), "a", nil)
		},
		"node": func(ctx context.Context, c *client.Client) (client.Hold, error) {
			return nodes.New(c, "n").Join(ctx, nodes.Config{ID: "a", TTL: ttl})
		},
		"pool": func(ctx context.Context, c *client.Client) (client.Hold, error) {
			p := rig.Must[*pool.Pool](t)(pool.Create(ctx, c, "p", pool.Spec{IDs: []string{"a"}}))
			return p.Acquire(ctx, pool.Request{TTL: ttl})
		},
		"queue": func(ctx context.Context, c *client.Client) (client.Hold, error) {
			i, err := queue.New(c, "q", queue.Config{TTL: ttl}).Claim(ctx)
			return i, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var releasing, released atomic.Bool
			answer := func(r *pb.Request) *pb.Response {
				if releasing.Load() {
					<-time.After(time.Second)
					released.Store(true)
				}
				return agree(r)
			}
			rig.Mute(t, answer, func(t *testing.T, c *client.Client) {
				h, err := acquire(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				releasing.Store(true)
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				start := time.Now()
				if err := h.Release(ended); err == nil || time.Since(start) != 0 {
					t.Errorf("Release returned after %v: %v", time.Since(start), err)
				}
				if err := c.Close(); err != nil || !released.Load() {
					t.Errorf("Close: %v; release answered: %v", err, released.Load())
				}
			})
		})
	}
}

// TestLeadReturns checks that Lead and Do return the function's result soon after the function
// returns, even if no member answers. If the hold was lost, they return immediately.
func TestLeadReturns(t *testing.T) {
	const ttl = time.Minute
	failed := errors.New("failed")
	for name, lead := range map[string]func(
		*testing.T, *client.Client, func(context.Context) error,
	) error{
		"mutex": func(t *testing.T, c *client.Client, f func(context.Context) error) error {
			l := rig.Must[*client.Lease](t)(c.Grant(t.Context(), client.Grant{TTL: ttl}))
			return lock.NewMutex(l.Session(), "m").Do(t.Context(),
				func(ctx context.Context, _ *lock.Held) error { return f(ctx) })
		},
		"node": func(t *testing.T, c *client.Client, f func(context.Context) error) error {
			n := rig.Must[*nodes.Node](t)(nodes.New(c, "n").Join(t.Context(),
				nodes.Config{ID: "a", TTL: ttl}))
			return n.Lead(t.Context(), func(ctx context.Context, _ *nodes.Primacy) error {
				return f(ctx)
			})
		},
	} {
		for _, loses := range []bool{false, true} {
			var silent atomic.Bool
			answer := func(r *pb.Request) *pb.Response {
				if silent.Load() {
					return nil
				}
				return agree(r)
			}
			rig.Mute(t, answer, func(t *testing.T, c *client.Client) {
				var returned time.Time
				err := lead(t, c, func(ctx context.Context) error {
					silent.Store(true)
					if loses {
						<-ctx.Done()
					}
					returned = time.Now()
					return failed
				})
				want := background.Wait
				if loses {
					want = 0
				}
				if d := time.Since(returned); !errors.Is(err, failed) || d != want {
					t.Errorf("%s: returned %v after %v, want %v after %v", name, err, d, failed, want)
				}
			})
		}
	}
}

// TestClaimAfterContext checks that a claim is revoked if its context ends before the cluster
// answers. Otherwise the item would remain claimed for a TTL.
func TestClaimAfterContext(t *testing.T) {
	var granted, revoked atomic.Int64
	answer := func(r *pb.Request) *pb.Response {
		if ops := r.GetTxn().GetSuccess(); len(ops) > 0 && ops[0].GetGrant() != nil {
			granted.Store(ops[0].GetGrant().Id)
			return nil
		}
		if r.GetRevoke() != nil {
			<-time.After(time.Second)
			revoked.Store(r.GetRevoke().Leases[0].Id)
		}
		return agree(r)
	}
	rig.Mute(t, answer, func(t *testing.T, c *client.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := queue.New(c, "q", queue.Config{}).Claim(ctx)
		if !errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("Claim: %v", err)
		}
		if err := c.Close(); err != nil || granted.Load() == 0 || granted.Load() != revoked.Load() {
			t.Errorf("Close: %v; granted %d, revoked %d", err, granted.Load(), revoked.Load())
		}
	})
}

// agree returns the response of a successful request. It keeps no state.
func agree(r *pb.Request) *pb.Response {
	h := &pb.Header{Revision: 9}
	switch x := r.Body.(type) {
	case *pb.Request_Put:
		return &pb.Response{Body: &pb.Response_Put{Put: &pb.PutResponse{Header: h}}}
	case *pb.Request_ReadRange:
		return &pb.Response{Body: &pb.Response_ReadRange{ReadRange: &pb.RangeResponse{Header: h}}}
	case *pb.Request_Revoke:
		return &pb.Response{Body: &pb.Response_Revoke{Revoke: &pb.RevokeResponse{
			Results: []*pb.RevokeResult{{Id: x.Revoke.Leases[0].Id}},
		}}}
	case *pb.Request_Watch:
		return &pb.Response{More: true, Body: &pb.Response_Watch{Watch: &pb.WatchResponse{Header: h}}}
	case *pb.Request_Txn:
		out := &pb.TxnResponse{Header: h, Succeeded: true}
		for _, op := range x.Txn.Success {
			out.Responses = append(out.Responses, result(op, h))
		}
		if x.Txn.Wait == nil {
			return &pb.Response{Body: &pb.Response_Txn{Txn: out}}
		}
		out.Ticket = &pb.Ticket{State: pb.Ticket_STATE_READY, CreateRevision: 9}
		return &pb.Response{More: true, Body: &pb.Response_Txn{Txn: out}}
	}
	return nil
}

func result(op *pb.Op, h *pb.Header) *pb.OpResponse {
	switch x := op.Op.(type) {
	case *pb.Op_ReadRange:
		kvs := []*pb.KeyValue(nil)
		if strings.HasPrefix(string(x.ReadRange.Key), "q/item/") {
			kvs = append(kvs, &pb.KeyValue{Key: []byte("q/item/1"), ModRevision: 9})
		}
		return &pb.OpResponse{Response: &pb.OpResponse_ReadRange{
			ReadRange: &pb.RangeResponse{Header: h, Kvs: kvs},
		}}
	case *pb.Op_DrawToken:
		return &pb.OpResponse{Response: &pb.OpResponse_DrawToken{DrawToken: 2}}
	case *pb.Op_Grant:
		return &pb.OpResponse{Response: &pb.OpResponse_Grant{Grant: &pb.GrantResponse{
			Lease: &pb.Lease{
				Id: x.Grant.Id, Token: 1, TtlMs: x.Grant.TtlMs, RemainingMs: x.Grant.TtlMs,
			},
		}}}
	case *pb.Op_DeleteRange:
		return &pb.OpResponse{Response: &pb.OpResponse_DeleteRange{
			DeleteRange: &pb.DeleteResponse{Header: h},
		}}
	case *pb.Op_Revoke:
		return &pb.OpResponse{Response: &pb.OpResponse_Revoke{Revoke: 1}}
	}
	return &pb.OpResponse{Response: &pb.OpResponse_Put{Put: &pb.PutResponse{Header: h}}}
}
