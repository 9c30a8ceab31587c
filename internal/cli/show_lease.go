package cli

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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
		p.header((*pb.LeaseRevokeResponse)(r).GetHeader())
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
