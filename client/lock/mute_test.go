package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/rig"
)

// waiting answers a request to enter a queue as if another ticket came first. It ignores all other
// requests.
func waiting(r *pb.Request) *pb.Response {
	if r.GetTxn().GetWait() == nil {
		return nil
	}
	return &pb.Response{More: true, Body: &pb.Response_Txn{Txn: &pb.TxnResponse{
		Header: &pb.Header{Revision: 9}, Succeeded: true,
		Responses: []*pb.OpResponse{
			{Response: &pb.OpResponse_Put{Put: &pb.PutResponse{Header: &pb.Header{}}}},
			{Response: &pb.OpResponse_DrawToken{DrawToken: 2}},
		},
		Ticket: &pb.Ticket{State: pb.Ticket_STATE_WAITING, CreateRevision: 9},
	}}}
}

// TestUnanswered checks that a session whose requests are not answered fails when its lease expires
// on the local clock, even if the caller would wait longer. This holds for every type of request
// (T16, T17).
func TestUnanswered(t *testing.T) {
	const ttl = 10 * time.Second
	for name, call := range map[string]func(
		context.Context, *client.Client, *client.Session,
	) error{
		"lock": func(ctx context.Context, _ *client.Client, s *client.Session) error {
			_, err := lock.NewMutex(s, "m").Lock(ctx)
			return err
		},
		"within": func(ctx context.Context, _ *client.Client, s *client.Session) error {
			_, err := lock.NewMutex(s, "m").LockWithin(ctx, ttl/2)
			return err
		},
		"try": func(ctx context.Context, _ *client.Client, s *client.Session) error {
			_, err := lock.NewMutex(s, "m").TryLock(ctx)
			return err
		},
		"read": func(ctx context.Context, _ *client.Client, s *client.Session) error {
			_, err := lock.NewRWMutex(s, "m").RLock(ctx)
			return err
		},
		"acquire": func(ctx context.Context, _ *client.Client, s *client.Session) error {
			_, err := lock.NewSemaphore(s, "m", 2).Acquire(ctx)
			return err
		},
		"campaign": func(ctx context.Context, c *client.Client, s *client.Session) error {
			_, err := lock.NewElection(c, "m").Campaign(ctx, s, lock.Candidate{})
			return err
		},
	} {
		for at, answer := range map[string]func(*pb.Request) *pb.Response{
			"enters": rig.Unanswered, "waits": waiting,
		} {
			rig.Mute(t, answer, func(t *testing.T, c *client.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				l := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: ttl}))
				began := time.Now()
				err := call(ctx, c, l.Session())
				if !errors.Is(err, client.ErrExpired) || time.Since(began) > ttl {
					t.Errorf("%s, unanswered when it %s: %v after %v", name, at, err, time.Since(began))
				}
			})
		}
	}
}
