package compare

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leasehold "leasehold.dev/api/leasehold/v1"
)

// Tenant is what there is of limits, and of a tenant beside the measured users that asks for more
// than it may have.
type Tenant uint8

// What there may be. With each but NoTenant everybody has limits, which the measured users do not
// reach.
const (
	NoTenant Tenant = iota
	// Limited is limits, and nobody that reaches them.
	Limited
	// AtItsLeases has a user that may have one lease, and asks for another all the time. It is
	// refused where the command is applied.
	AtItsLeases
	// AtItsRate has a user that may ask once a second, and asks all the time. It is refused at once.
	AtItsRate
)

// tenantPace is how often a tenant asks that is refused: a thousand times a second.
const tenantPace = time.Millisecond

// greedyUser is who is refused.
const greedyUser = "greedy"

// limit sets the limits of everybody, and of the user that is to reach its own.
func (s *Server) limit(ctx context.Context, root string) error {
	ctx = withToken(ctx, root)
	c := leasehold.NewAccessServiceClient(s.members[0].control.Conn(0))
	set := func(of *leasehold.Limits, most int64, what ...leasehold.Limit_Resource) error {
		for _, r := range what {
			of.Limits = append(of.Limits, &leasehold.Limit{Resource: r, Most: most})
		}
		_, err := c.SetLimits(ctx, &leasehold.SetLimitsRequest{Limits: of})
		return err
	}
	var all []leasehold.Limit_Resource
	for r := range leasehold.Limit_Resource_name {
		if r != 0 {
			all = append(all, leasehold.Limit_Resource(r))
		}
	}
	if err := set(&leasehold.Limits{}, 1<<40, all...); err != nil {
		return err
	}
	what := map[Tenant]leasehold.Limit_Resource{
		AtItsLeases: leasehold.Limit_RESOURCE_LEASES, AtItsRate: leasehold.Limit_RESOURCE_RATE,
	}[s.Target.Tenant]
	if what == 0 {
		return nil
	}
	return set(&leasehold.Limits{User: greedyUser}, 1, what)
}

// beGreedy has the tenant ask for leases until the function that it returns is called. That fails
// if it was hardly ever refused.
func (s *Server) beGreedy(token string) (stop func() error, err error) {
	conn, err := dial([]string{s.members[0].endpoint}, 1, token)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	var granted, refused atomic.Int64
	began := time.Now()
	calls.Go(func() {
		pace := time.NewTicker(tenantPace)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
			calls.Go(func() {
				_, err := pb.NewLeaseClient(conn.Conn(0)).LeaseGrant(ctx,
					&pb.LeaseGrantRequest{TTL: 3600})
				switch {
				case err == nil:
					granted.Add(1)
				case status.Code(err) == codes.ResourceExhausted:
					refused.Add(1)
				}
			})
		}
	})
	return func() error {
		cancel()
		calls.Wait()
		took := time.Since(began)
		if err := conn.Close(); err != nil {
			return err
		}
		if n := refused.Load(); n < granted.Load() || n < int64(took/tenantPace)/4 {
			return fmt.Errorf("bench: the tenant was refused %d times in %v, and granted %d leases",
				n, took, granted.Load())
		}
		return nil
	}, nil
}
