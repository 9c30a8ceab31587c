package native

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// These limits are documented in leases.proto.
const (
	maxTTL        lease.TTL = 9_000_000_000_000 // the maximum TTL that the engine supports
	usualCacheTTL lease.TTL = 5000              // the default for a lease that holds ranges
	maxText                 = 1024              // bytes in a name, an owner, or a request ID
	maxLabels               = 64
	maxLabelBytes           = 16 << 10
	maxBatch                = 10_000 // limit on the leases in one call
	maxCallKeys             = 10_000
)

// invalid returns an error of code InvalidArgument.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func (s *leases) checkTTL(ms int64) error {
	if ttl := lease.TTL(ms); ttl < s.o.MinTTL || ttl > maxTTL {
		return &lease.TTLError{Got: ttl, Min: s.o.MinTTL, Max: maxTTL}
	}
	return nil
}

func checkText(what, text string) error {
	if len(text) > maxText {
		return invalid("%s is %d bytes long; the limit is %d", what, len(text), maxText)
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid("%d labels; the limit is %d", len(labels), maxLabels)
	}
	size := 0
	for k, v := range labels {
		if k == "" {
			return invalid("a label has no name")
		}
		size += len(k) + len(v)
	}
	if size > maxLabelBytes {
		return invalid("the labels are %d bytes long; the limit is %d", size, maxLabelBytes)
	}
	return nil
}

// checkSomeKeys is checkKeys for a call that requires at least one key.
func checkSomeKeys(keys [][]byte) error {
	if len(keys) == 0 {
		return invalid("no keys specified")
	}
	return checkKeys(keys)
}

// checkKeys returns an error if there are too many keys, or if any key is empty or repeated.
func checkKeys(keys [][]byte) error {
	if len(keys) > maxCallKeys {
		return invalid("%d keys; the limit is %d", len(keys), maxCallKeys)
	}
	if len(keys) == 0 {
		return nil // the usual case
	}
	seen := make(map[string]struct{}, len(keys))
	for _, k := range keys {
		if len(k) == 0 {
			return invalid("a key is empty")
		}
		if _, ok := seen[string(k)]; ok {
			return invalid("key %q is repeated", k)
		}
		seen[string(k)] = struct{}{}
	}
	return nil
}

// checkRef checks a reference to a lease. If token is set, the reference must contain a token.
func checkRef(r *pb.LeaseRef, token bool) error {
	switch {
	case r.GetId() == 0 && r.GetName() == "":
		return invalid("the lease's id or name must be set")
	case r.GetId() < 0:
		return invalid("the lease's id must be positive, not %d", r.GetId())
	case token && r.GetToken() == 0:
		return invalid("the lease's token must be set")
	default:
		return checkText("the lease's name", r.GetName())
	}
}

// checkAnyRef is checkRef for a reference with an optional token.
func checkAnyRef(r *pb.LeaseRef) error { return checkRef(r, false) }

// checkCacheRef is checkRef for the lease of a cache. Caches send so many messages that looking up
// their leases by name would be too expensive.
func checkCacheRef(r *pb.LeaseRef) error {
	if r.GetName() != "" {
		return invalid("the lease of a cache must be referred to by id, not by name")
	}
	return checkRef(r, true)
}

// checkRenewRef is checkRef for a renewal. If the reference contained only a name, a client could
// renew another holder's lease and believe that it still holds its own. The token prevents this.
func checkRenewRef(r *pb.LeaseRef) error {
	return checkRef(r, r.GetId() == 0 && r.GetName() != "")
}

func checkRefs(list []*pb.LeaseRef, check func(*pb.LeaseRef) error) error {
	if len(list) > maxBatch {
		return invalid("%d leases; the limit is %d", len(list), maxBatch)
	}
	for i, r := range list {
		if err := check(r); err != nil {
			return invalid("leases[%d]: %s", i, status.Convert(err).Message())
		}
	}
	return nil
}

// checkRenew checks the leases in a request. A request lists them either in leases or in columns.
func checkRenew(r *pb.RenewRequest) error {
	switch n := len(r.Ids); {
	case n > 0 && len(r.Leases) > 0:
		return invalid("leases and ids must not both be set")
	case n > maxBatch:
		return invalid("ids contains %d IDs; the limit is %d", n, maxBatch)
	case len(r.Tokens) != 0 && len(r.Tokens) != n:
		return invalid("%d tokens for %d ids", len(r.Tokens), n)
	case n+len(r.Leases) > 0 && len(r.Groups)+len(r.Leave) > 0:
		return invalid("leases and groups must not both be set")
	case len(r.Groups)+len(r.Leave) > maxBatch:
		return invalid("groups and leave contain %d elements; the limit is %d",
			len(r.Groups)+len(r.Leave), maxBatch)
	}
	for i, id := range r.Ids {
		if id <= 0 {
			return invalid("ids[%d]: the lease's id must be positive, not %d", i, id)
		}
	}
	return checkRefs(r.Leases, checkRenewRef)
}

// checkOne checks that a request refers to a lease either by ID or by name.
func checkOne(id int64, name string) error {
	switch {
	case id == 0 && name == "":
		return invalid("either id or name must be set")
	case id != 0 && name != "":
		return invalid("id and name must not both be set")
	case id < 0:
		return invalid("id must be positive, not %d", id)
	default:
		return nil
	}
}
