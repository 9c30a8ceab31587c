package server

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/audit"

	native "leasehold.dev/api/leasehold/v1"
)

// auditLevel says from which level on calls are recorded. Calls that are denied always are. The
// first ones are audit.Levels.
type auditLevel uint8

const (
	// auditChanges: who may do what, members and settings, and grants and ends of leases.
	auditChanges auditLevel = iota
	auditWrites             // and of keys
	auditReads
	auditNever   // such as renewals, of which there are very many, and parts of other calls
	auditUnknown // a request that nobody has put into one of the above
)

// levelOf returns the level of a request, over whichever API it came.
func levelOf(req any) auditLevel {
	switch r := req.(type) {
	case *pb.AlarmRequest:
		if r.Action == pb.AlarmRequest_GET {
			return auditReads
		}
		return auditChanges
	case *pb.DowngradeRequest:
		if r.Action == pb.DowngradeRequest_VALIDATE {
			return auditReads
		}
		return auditChanges
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
		return auditChanges
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest,
		*native.PutRequest, *native.DeleteRequest, *native.TxnRequest,
		*native.AttachRequest, *native.DetachRequest,
		*v3lockpb.LockRequest, *v3lockpb.UnlockRequest, *v3electionpb.CampaignRequest,
		*v3electionpb.ProclaimRequest, *v3electionpb.ResignRequest:
		return auditWrites
	case *pb.RangeRequest, *pb.WatchRequest, *pb.WatchCreateRequest, *v3electionpb.LeaderRequest,
		*pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest, *pb.MemberListRequest,
		*pb.StatusRequest, *pb.HashRequest, *pb.HashKVRequest,
		*pb.AuthUserGetRequest, *pb.AuthUserListRequest, *pb.AuthRoleGetRequest,
		*pb.AuthRoleListRequest, *native.ListNamesRequest, *native.ListLimitsRequest,
		*native.ListBindingsRequest, *native.WhoAmIRequest,
		*native.RangeRequest, *native.WatchRequest, *native.EventsRequest, *native.DescribeRequest,
		*native.ListRequest, *native.CheckTokenRequest, *native.CacheRequest:
		return auditReads
	case *pb.AuthStatusRequest, *pb.LeaseKeepAliveRequest, *pb.WatchCancelRequest,
		*pb.WatchProgressRequest, *native.RenewRequest, *native.SessionRequest, *native.CacheAck,
		*native.ClientMessage, *native.RelayRequest:
		return auditNever
	}
	return auditUnknown
}

// What requests of both APIs say of themselves. No other part of one is ever looked at: values,
// passwords and secrets are not.
type (
	withKey  interface{ GetKey() []byte }
	withEnd  interface{ GetRangeEnd() []byte }
	withKeys interface{ GetKeys() [][]byte }
	withName interface{ GetName() string }
	// withBytesName is a lock or an election.
	withBytesName interface{ GetName() []byte }
	withUser      interface{ GetUser() string }
	withRole      interface{ GetRole() string }
	withLease     interface{ GetLease() int64 }
	withRef       interface{ GetLease() *native.LeaseRef }
	withMember    interface{ GetID() uint64 }
	withOldID     interface{ GetID() int64 }
	withID        interface{ GetId() int64 }
)

// entryOf returns what an entry says of a request.
func entryOf(req any) *audit.Entry {
	e := new(audit.Entry)
	fill(e, req)
	return e
}

// fill has an empty entry say what entries say of a request.
func fill(e *audit.Entry, req any) {
	addKeys(e, req)
	addLease(e, req)
	switch r := req.(type) {
	case *native.GrantRequest:
		e.Name, e.Owner = audit.Text(r.GetName()), audit.Text(r.GetOwner())
	case *native.ResumeRequest:
		e.Name = audit.Text(r.GetName())
	case *native.HandOverRequest:
		e.Target, e.Owner = audit.Text(r.GetPrincipal()), audit.Text(r.GetOwner())
	case *native.GrantNamesRequest:
		p := r.GetPermission()
		e.Target = audit.Text(p.GetRole())
		e.Detail = audit.Text(fmt.Sprintf("%v %q prefix %v", p.GetKind(), p.GetName(), p.GetPrefix()))
	case *native.SetLimitsRequest:
		l := r.GetLimits()
		e.Target, e.Detail = audit.Text(limitsOf(l)), audit.Text(fmt.Sprint(l.GetLimits()))
	case *pb.AuthRoleGrantPermissionRequest:
		e.Target, e.Detail = audit.Text(r.Name), audit.Text(r.GetPerm().GetPermType().String())
		e.AddKey(r.GetPerm().GetKey(), r.GetPerm().GetRangeEnd())
	case *pb.AuthUserGrantRoleRequest:
		e.Target, e.Detail = audit.Text(r.User), audit.Text(r.Role)
	case *pb.AuthUserRevokeRoleRequest:
		e.Target, e.Detail = audit.Text(r.Name), audit.Text(r.Role)
	case *pb.MemberAddRequest:
		e.Target = audit.Text(fmt.Sprint(r.PeerURLs))
	case *pb.MemberUpdateRequest:
		e.Target, e.Detail = audit.Text(fmt.Sprintf("%x", r.ID)), audit.Text(fmt.Sprint(r.PeerURLs))
	case *pb.MoveLeaderRequest:
		e.Target = audit.Text(fmt.Sprintf("%x", r.TargetID))
	case *pb.AlarmRequest:
		e.Target = audit.Text(fmt.Sprintf("%v %v %x", r.Action, r.Alarm, r.MemberID))
	case *pb.DowngradeRequest:
		e.Target = audit.Text(fmt.Sprintf("%v %s", r.Action, r.Version))
	case *pb.CompactionRequest:
		e.Target = audit.Text(fmt.Sprint(r.Revision))
	case withMember:
		e.Target = audit.Text(fmt.Sprintf("%x", r.GetID()))
	case withUser:
		e.Target = audit.Text(r.GetUser())
	case withRole:
		e.Target = audit.Text(r.GetRole())
	case withName:
		e.Target = audit.Text(r.GetName())
	}
}

// limitsOf says whose limits they are.
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

// addKeys adds the keys of a request, of all parts of a transaction.
func addKeys(e *audit.Entry, req any) {
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
	if r, ok := req.(withBytesName); ok { // of a lock or an election
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

func addOp(e *audit.Entry, op *pb.RequestOp) {
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

func addNativeOp(e *audit.Entry, op *native.Op) {
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

// addLease adds the lease that a request names.
func addLease(e *audit.Entry, req any) {
	switch r := req.(type) {
	case withLease:
		e.Lease = r.GetLease()
	case withRef:
		e.Lease, e.Name = r.GetLease().GetId(), audit.Text(r.GetLease().GetName())
	case *native.RevokeRequest:
		if refs := r.GetLeases(); len(refs) > 0 {
			e.Lease, e.Name = refs[0].GetId(), audit.Text(refs[0].GetName())
			if len(refs) > 1 {
				e.Detail = audit.Text(fmt.Sprintf("and %d more leases", len(refs)-1))
			}
		}
	case withOldID:
		e.Lease = r.GetID()
	case withID:
		e.Lease = r.GetId()
	}
}

// revisionOf returns the revision in the header of an answer.
func revisionOf(resp any) int64 {
	switch r := resp.(type) {
	case interface{ GetHeader() *pb.ResponseHeader }:
		return r.GetHeader().GetRevision()
	case interface{ GetHeader() *native.Header }:
		return r.GetHeader().GetRevision()
	}
	return 0
}
