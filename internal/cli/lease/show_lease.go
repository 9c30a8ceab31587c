package lease

import (
	"encoding/base64"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/cli/app"
)

func showGrant(r *clientv3.LeaseGrantResponse) app.Answer {
	return app.Answer{JSON: r, Proto: r, Simple: func(p *app.Page) {
		p.Printf("lease %016x granted with TTL(%ds)\n", r.ID, r.TTL)
	}, Fields: func(p *app.Page) {
		p.Header(r.ResponseHeader)
		p.LeaseID("ID", int64(r.ID))
		p.Field("TTL", r.TTL)
	}}
}

func showRevoke(id clientv3.LeaseID, r *clientv3.LeaseRevokeResponse) app.Answer {
	return app.Answer{JSON: r, Proto: r, Simple: func(p *app.Page) {
		p.Printf("lease %016x revoked\n", id)
	}, Fields: func(p *app.Page) {
		p.Header((*etcdserverpb.LeaseRevokeResponse)(r).GetHeader())
	}}
}

func showKeepAlive(r *clientv3.LeaseKeepAliveResponse) app.Answer {
	return app.Answer{JSON: r, Proto: r, Simple: func(p *app.Page) {
		p.Printf("lease %016x keepalived with TTL(%d)\n", r.ID, r.TTL)
	}, Fields: func(p *app.Page) {
		p.Header(r.ResponseHeader)
		p.LeaseID("ID", int64(r.ID))
		p.Field("TTL", r.TTL)
	}}
}

func showTimeToLive(r *clientv3.LeaseTimeToLiveResponse, keys bool) app.Answer {
	return app.Answer{JSON: r, Proto: r, Simple: func(p *app.Page) {
		if r.GrantedTTL == 0 && r.TTL == -1 {
			p.Printf("lease %016x already expired\n", r.ID)
			return
		}
		p.Printf("lease %016x granted with TTL(%ds), remaining(%ds)", r.ID, r.GrantedTTL, r.TTL)
		if keys {
			p.Printf(", attached keys(%s)", app.ReadableAll(app.TextsOf(r.Keys)))
		}
		p.Printf("\n")
	}, Fields: func(p *app.Page) {
		p.Header(r.ResponseHeader)
		p.LeaseID("ID", int64(r.ID))
		p.Field("TTL", r.TTL)
		p.Field("GrantedTTL", r.GrantedTTL)
		for _, k := range r.Keys {
			p.Quoted("Key", string(k))
		}
	}}
}

func showLeases(r *clientv3.LeaseLeasesResponse) app.Answer {
	return app.Answer{JSON: r, Proto: r, Simple: func(p *app.Page) {
		p.Printf("found %d leases\n", len(r.Leases))
		for _, l := range r.Leases {
			p.Printf("%016x\n", l.ID)
		}
	}, Fields: func(p *app.Page) {
		p.Header(r.ResponseHeader)
		for _, l := range r.Leases {
			p.LeaseID("ID", int64(l.ID))
		}
	}}
}

// showChanged prints the ID of the lease and then the text, which describes the change. If the
// response contains a secret, it prints that too.
func showChanged(r proto.Message, l *pb.Lease, text string, args ...any) app.Answer {
	return app.ProtoAnswer(r, func(p *app.Page) {
		p.Printf("lease %016x "+text, append([]any{l.Id}, args...)...)
		if s, ok := r.(interface{ GetSecret() []byte }); ok && len(s.GetSecret()) > 0 {
			p.Printf("secret %s\n", base64.StdEncoding.EncodeToString(s.GetSecret()))
		}
	})
}

func showChecked(request *pb.CheckTokenRequest, r *pb.CheckTokenResponse) app.Answer {
	ans := app.ProtoAnswer(r, func(p *app.Page) {
		switch {
		case r.Valid:
			p.Printf("token %d is valid\n", request.Token)
		case request.Token > r.Current && r.Current != 0:
			p.Printf("token %d is not valid: the lease has token %d\n", request.Token, r.Current)
		case r.Current != 0:
			p.Printf("token %d is old: the lease has token %d\n", request.Token, r.Current)
		default:
			p.Printf("token %d is not valid: lease not found\n", request.Token)
		}
	})
	if !r.Valid {
		ans.Code = app.ExitFailure
	}
	return ans
}

func showLeaseList(r *pb.ListResponse) app.Answer {
	var rows [][]string
	for _, l := range r.Leases {
		rows = append(rows, leaseRow(l))
	}
	ans := app.RowsAnswer(leaseHead, rows, app.ProtoJSON(r))
	ans.Proto = r
	ans.Fields = func(p *app.Page) { p.Message(r.ProtoReflect()) }
	return ans
}

func showDescribed(r *pb.DescribeResponse) app.Answer {
	ans := app.ProtoAnswer(r, func(p *app.Page) { describeLease(p, r.Lease) })
	ans.Table = func() ([]string, [][]string) {
		return leaseHead, [][]string{app.ReadableAll(leaseRow(r.Lease))}
	}
	return ans
}

// heldText describes a range of keys.
func heldText(r *pb.KeyRange) string {
	key, end := string(r.Key), string(r.RangeEnd)
	switch {
	case end == "":
		return fmt.Sprintf("%q", key)
	case end == "\x00":
		return fmt.Sprintf("%q and all later keys", key)
	case end == store.Prefix(key).End:
		return fmt.Sprintf("all keys that begin with %q", key)
	default:
		return fmt.Sprintf("%q up to %q", key, end)
	}
}
