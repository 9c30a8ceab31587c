package cli

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

func showGrant(r *clientv3.LeaseGrantResponse) answer {
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("lease %016x granted with TTL(%ds)\n", r.ID, r.TTL)
	}, fields: func(p *page) {
		p.header(r.ResponseHeader)
		p.leaseID("ID", int64(r.ID))
		p.field("TTL", r.TTL)
	}}
}

func showRevoke(id clientv3.LeaseID, r *clientv3.LeaseRevokeResponse) answer {
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("lease %016x revoked\n", id)
	}, fields: func(p *page) {
		p.header((*etcdserverpb.LeaseRevokeResponse)(r).GetHeader())
	}}
}

func showKeepAlive(r *clientv3.LeaseKeepAliveResponse) answer {
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("lease %016x keepalived with TTL(%d)\n", r.ID, r.TTL)
	}, fields: func(p *page) {
		p.header(r.ResponseHeader)
		p.leaseID("ID", int64(r.ID))
		p.field("TTL", r.TTL)
	}}
}

func showTimeToLive(r *clientv3.LeaseTimeToLiveResponse, keys bool) answer {
	return answer{json: r, proto: r, simple: func(p *page) {
		if r.GrantedTTL == 0 && r.TTL == -1 {
			p.printf("lease %016x already expired\n", r.ID)
			return
		}
		p.printf("lease %016x granted with TTL(%ds), remaining(%ds)", r.ID, r.GrantedTTL, r.TTL)
		if keys {
			p.printf(", attached keys(%s)", readableAll(textsOf(r.Keys)))
		}
		p.printf("\n")
	}, fields: func(p *page) {
		p.header(r.ResponseHeader)
		p.leaseID("ID", int64(r.ID))
		p.field("TTL", r.TTL)
		p.field("GrantedTTL", r.GrantedTTL)
		for _, k := range r.Keys {
			p.quoted("Key", string(k))
		}
	}}
}

func showLeases(r *clientv3.LeaseLeasesResponse) answer {
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("found %d leases\n", len(r.Leases))
		for _, l := range r.Leases {
			p.printf("%016x\n", l.ID)
		}
	}, fields: func(p *page) {
		p.header(r.ResponseHeader)
		for _, l := range r.Leases {
			p.leaseID("ID", int64(l.ID))
		}
	}}
}

func millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// leaseState is what a lease is in besides alive.
func leaseState(l *pb.Lease) string {
	if l.Delayed {
		return "delayed"
	}
	return "alive"
}

var leaseHead = []string{"ID", "Name", "Owner", "TTL", "Remaining", "Keys", "State"}

func leaseRow(l *pb.Lease) []string {
	return []string{
		fmt.Sprintf("%016x", l.Id), l.Name, l.Owner,
		millis(l.TtlMs), millis(l.RemainingMs), fmt.Sprint(l.KeyCount), leaseState(l),
	}
}

// showChanged shows what a command did to a lease: the text follows the lease's ID. A secret in the
// response is printed, too.
func showChanged(r proto.Message, l *pb.Lease, text string, args ...any) answer {
	return protoAnswer(r, func(p *page) {
		p.printf("lease %016x "+text, append([]any{l.Id}, args...)...)
		if s, ok := r.(interface{ GetSecret() []byte }); ok && len(s.GetSecret()) > 0 {
			p.printf("secret %s\n", base64.StdEncoding.EncodeToString(s.GetSecret()))
		}
	})
}

func showChecked(asked *pb.CheckTokenRequest, r *pb.CheckTokenResponse) answer {
	ans := protoAnswer(r, func(p *page) {
		switch {
		case r.Valid:
			p.printf("token %d is valid\n", asked.Token)
		case asked.Token > r.Current && r.Current != 0:
			p.printf("token %d is not valid: the lease has token %d\n", asked.Token, r.Current)
		case r.Current != 0:
			p.printf("token %d is old: the lease has token %d\n", asked.Token, r.Current)
		default:
			p.printf("token %d is not valid: there is no such lease\n", asked.Token)
		}
	})
	if !r.Valid {
		ans.code = exitFailure
	}
	return ans
}

func showLeaseList(r *pb.ListResponse) answer {
	var rows [][]string
	for _, l := range r.Leases {
		rows = append(rows, leaseRow(l))
	}
	ans := rowsAnswer(leaseHead, rows, protoJSON(r))
	ans.proto = r
	ans.fields = func(p *page) { p.message(r.ProtoReflect()) }
	return ans
}

func showDescribed(r *pb.DescribeResponse) answer {
	ans := protoAnswer(r, func(p *page) { describeLease(p, r.Lease) })
	ans.table = func() ([]string, [][]string) {
		return leaseHead, [][]string{readableAll(leaseRow(r.Lease))}
	}
	return ans
}

// describe writes a lease for people: what it has not is left out.
func describeLease(p *page, l *pb.Lease) {
	line := func(name, value string) {
		if value != "" {
			p.printf("%-11s%s\n", name, readable(value))
		}
	}
	line("lease", fmt.Sprintf("%016x", l.Id))
	line("name", l.Name)
	line("owner", l.Owner)
	line("principal", l.Principal)
	for _, k := range slices.Sorted(maps.Keys(l.Labels)) {
		line("label", k+"="+l.Labels[k])
	}
	line("token", fmt.Sprint(l.Token))
	line("state", leaseState(l))
	line("ttl", millis(l.TtlMs))
	line("remaining", millis(l.RemainingMs))
	if l.LockDelayMs > 0 {
		line("lock delay", millis(l.LockDelayMs))
	}
	if l.AtExpiry == pb.AtExpiry_AT_EXPIRY_KEEP {
		line("at expiry", "keys stay")
	}
	if l.Bound {
		line("bound", "to its key")
	}
	for _, h := range l.Holds {
		p.printf("%-11s%s\n", "holds", heldText(h))
	}
	for _, k := range l.Keys {
		p.printf("%-11s%q\n", "key", k)
	}
}

// heldText is a range of keys for people.
func heldText(r *pb.KeyRange) string {
	key, end := string(r.Key), string(r.RangeEnd)
	switch {
	case end == "":
		return fmt.Sprintf("%q", key)
	case end == "\x00":
		return fmt.Sprintf("%q and all after it", key)
	case end == store.Prefix(key).End:
		return fmt.Sprintf("all that begins with %q", key)
	default:
		return fmt.Sprintf("%q up to %q", key, end)
	}
}
