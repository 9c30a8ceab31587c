package audit

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"

	native "leasehold.dev/api/leasehold/v1"
)

// level is the lowest level at which a type of call is recorded. Denied calls are always recorded.
// The first values correspond to Levels.
type level uint8

const (
	// changes covers changes to permissions, members and settings, and the granting and ending of
	// leases.
	changes level = iota
	writes        // changes to keys as well
	reads
	never   // for frequent calls, such as renewals, and for parts of other calls
	unknown // the request is not listed in levelOf
)

// levelOf returns the level of a request. It covers all APIs.
func levelOf(req any) level {
	switch r := req.(type) {
	case *pb.AlarmRequest:
		if r.Action == pb.AlarmRequest_GET {
			return reads
		}
		return changes
	case *pb.DowngradeRequest:
		if r.Action == pb.DowngradeRequest_VALIDATE {
			return reads
		}
		return changes
	case *pb.AuthEnableRequest, *pb.AuthDisableRequest, *pb.AuthenticateRequest,
		*pb.AuthUserAddRequest, *pb.AuthUserDeleteRequest, *pb.AuthUserChangePasswordRequest,
		*pb.AuthUserGrantRoleRequest, *pb.AuthUserRevokeRoleRequest, *pb.AuthRoleAddRequest,
		*pb.AuthRoleDeleteRequest, *pb.AuthRoleGrantPermissionRequest,
		*pb.AuthRoleRevokePermissionRequest,
		*native.GrantNamesRequest, *native.RevokeNamesRequest, *native.SetLimitsRequest,
		*pb.MemberAddRequest, *pb.MemberRemoveRequest, *pb.MemberUpdateRequest,
		*pb.MemberPromoteRequest, *pb.MoveLeaderRequest,
		*pb.CompactionRequest, *pb.DefragmentRequest, *pb.SnapshotRequest,
		*pb.LeaseGrantRequest, *pb.LeaseRevokeRequest,
		*native.GrantRequest, *native.RevokeRequest, *native.HandOverRequest,
		*native.ResumeRequest, *native.ChangeTTLRequest:
		return changes
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest,
		*native.PutRequest, *native.DeleteRequest, *native.TxnRequest,
		*native.AttachRequest, *native.DetachRequest,
		*v3lockpb.LockRequest, *v3lockpb.UnlockRequest, *v3electionpb.CampaignRequest,
		*v3electionpb.ProclaimRequest, *v3electionpb.ResignRequest:
		return writes
	case *pb.RangeRequest, *pb.WatchRequest, *pb.WatchCreateRequest, *v3electionpb.LeaderRequest,
		*pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest, *pb.MemberListRequest,
		*pb.StatusRequest, *pb.HashRequest, *pb.HashKVRequest,
		*pb.AuthUserGetRequest, *pb.AuthUserListRequest, *pb.AuthRoleGetRequest,
		*pb.AuthRoleListRequest, *native.ListNamesRequest, *native.ListLimitsRequest,
		*native.ListBindingsRequest, *native.WhoAmIRequest,
		*native.RangeRequest, *native.WatchRequest, *native.EventsRequest, *native.DescribeRequest,
		*native.ListRequest, *native.CheckTokenRequest, *native.CacheRequest:
		return reads
	case *pb.AuthStatusRequest, *pb.LeaseKeepAliveRequest, *pb.WatchCancelRequest,
		*pb.WatchProgressRequest, *native.RenewRequest, *native.SessionRequest, *native.CacheAck,
		*native.ClientMessage, *native.RelayRequest:
		return never
	}
	return unknown
}

// These interfaces describe the parts of requests that are recorded, for both APIs. Nothing else in
// a request is ever read. In particular, values, passwords and secrets are never read.
type (
	withKey  interface{ GetKey() []byte }
	withEnd  interface{ GetRangeEnd() []byte }
	withKeys interface{ GetKeys() [][]byte }
	withName interface{ GetName() string }
	// withBytesName is implemented by requests for locks and elections.
	withBytesName interface{ GetName() []byte }
	withUser      interface{ GetUser() string }
	withRole      interface{ GetRole() string }
	withLease     interface{ GetLease() int64 }
	withRef       interface{ GetLease() *native.LeaseRef }
	withMember    interface{ GetID() uint64 }
	withOldID     interface{ GetID() int64 }
	withID        interface{ GetId() int64 }
)

// entryOf returns the entry for a request.
func entryOf(req any) *Entry {
	e := new(Entry)
	fill(e, req)
	return e
}

// fill fills an empty entry from a request.
func fill(e *Entry, req any) {
	addKeys(e, req)
	addLease(e, req)
	switch r := req.(type) {
	case *native.GrantRequest:
		e.Name, e.Owner = Text(r.GetName()), Text(r.GetOwner())
	case *native.ResumeRequest:
		e.Name = Text(r.GetName())
	case *native.HandOverRequest:
		e.Target, e.Owner = Text(r.GetPrincipal()), Text(r.GetOwner())
	case *native.GrantNamesRequest:
		p := r.GetPermission()
		e.Target = Text(p.GetRole())
		e.Detail = Text(fmt.Sprintf("%v %q prefix %v", p.GetKind(), p.GetName(), p.GetPrefix()))
	case *native.SetLimitsRequest:
		l := r.GetLimits()
		e.Target, e.Detail = Text(limitsOf(l)), Text(fmt.Sprint(l.GetLimits()))
	case *pb.AuthRoleGrantPermissionRequest:
		e.Target, e.Detail = Text(r.Name), Text(r.GetPerm().GetPermType().String())
		e.AddKey(r.GetPerm().GetKey(), r.GetPerm().GetRangeEnd())
	case *pb.AuthUserGrantRoleRequest:
		e.Target, e.Detail = Text(r.User), Text(r.Role)
	case *pb.AuthUserRevokeRoleRequest:
		e.Target, e.Detail = Text(r.Name), Text(r.Role)
	case *pb.MemberAddRequest:
		e.Target = Text(fmt.Sprint(r.PeerURLs))
	case *pb.MemberUpdateRequest:
		e.Target, e.Detail = Text(fmt.Sprintf("%x", r.ID)), Text(fmt.Sprint(r.PeerURLs))
	case *pb.MoveLeaderRequest:
		e.Target = Text(fmt.Sprintf("%x", r.TargetID))
	case *pb.AlarmRequest:
		e.Target = Text(fmt.Sprintf("%v %v %x", r.Action, r.Alarm, r.MemberID))
	case *pb.DowngradeRequest:
		e.Target = Text(fmt.Sprintf("%v %s", r.Action, r.Version))
	case *pb.CompactionRequest:
		e.Target = Text(fmt.Sprint(r.Revision))
	case withMember:
		e.Target = Text(fmt.Sprintf("%x", r.GetID()))
	case withUser:
		e.Target = Text(r.GetUser())
	case withRole:
		e.Target = Text(r.GetRole())
	case withName:
		e.Target = Text(r.GetName())
	}
}

// limitsOf describes whom the limits apply to.
func limitsOf(l *native.Limits) string {
	switch {
	case l.GetUser() != "":
		return "user " + l.GetUser()
	case l.GetRole() != "":
		return "role " + l.GetRole()
	default:
		return "everybody"
	}
}

// addKeys adds all keys in a request, including those in every part of a transaction.
func addKeys(e *Entry, req any) {
	switch r := req.(type) {
	case *pb.TxnRequest:
		for _, branch := range [][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
			for _, op := range branch {
				addOp(e, op)
			}
		}
		return
	case *native.TxnRequest:
		for _, branch := range [][]*native.Op{r.GetSuccess(), r.GetFailure()} {
			for _, op := range branch {
				addNativeOp(e, op)
			}
		}
		return
	}
	if r, ok := req.(withBytesName); ok { // a lock or an election
		e.AddKey(r.GetName(), nil)
	}
	if r, ok := req.(withKeys); ok {
		for _, key := range r.GetKeys() {
			e.AddKey(key, nil)
		}
	}
	if r, ok := req.(withKey); ok {
		var end []byte
		if r, ok := req.(withEnd); ok {
			end = r.GetRangeEnd()
		}
		e.AddKey(r.GetKey(), end)
	}
}

func addOp(e *Entry, op *pb.RequestOp) {
	switch op := op.GetRequest().(type) {
	case *pb.RequestOp_RequestPut:
		addKeys(e, op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		addKeys(e, op.RequestDeleteRange)
	case *pb.RequestOp_RequestRange:
		addKeys(e, op.RequestRange)
	case *pb.RequestOp_RequestTxn:
		addKeys(e, op.RequestTxn)
	}
}

func addNativeOp(e *Entry, op *native.Op) {
	switch op := op.GetOp().(type) {
	case *native.Op_Put:
		addKeys(e, op.Put)
	case *native.Op_DeleteRange:
		addKeys(e, op.DeleteRange)
	case *native.Op_ReadRange:
		addKeys(e, op.ReadRange)
	case *native.Op_Txn:
		addKeys(e, op.Txn)
	}
}

// addLease adds the lease named by a request.
func addLease(e *Entry, req any) {
	switch r := req.(type) {
	case withLease:
		e.Lease = r.GetLease()
	case withRef:
		e.Lease, e.Name = r.GetLease().GetId(), Text(r.GetLease().GetName())
	case *native.RevokeRequest:
		if refs := r.GetLeases(); len(refs) > 0 {
			e.Lease, e.Name = refs[0].GetId(), Text(refs[0].GetName())
			if len(refs) > 1 {
				e.Detail = Text(fmt.Sprintf("and %d more leases", len(refs)-1))
			}
		}
	case withOldID:
		e.Lease = r.GetID()
	case withID:
		e.Lease = r.GetId()
	}
}

// revisionOf returns the revision in the header of a response.
func revisionOf(resp any) int64 {
	switch r := resp.(type) {
	case interface{ GetHeader() *pb.ResponseHeader }:
		return r.GetHeader().GetRevision()
	case interface{ GetHeader() *native.Header }:
		return r.GetHeader().GetRevision()
	}
	return 0
}
