package native

import (
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
)

// timing is what is known of the time of a request.
type timing struct {
	trace Traced // nil if nothing is to be known of it
	kind  string // in case that it takes long; "" for one that may last, or if none is slow
	begun time.Time
	late  Traced // set by the core before it answers; may be nil
}

// kindOf returns what a request asks for, by the name of the field that has it; "" if it lasts as
// long as the client wants.
func kindOf(r *pb.Request) string {
	switch r.Body.(type) {
	case *pb.Request_Put:
		return "put"
	case *pb.Request_DeleteRange:
		return "delete_range"
	case *pb.Request_ReadRange:
		return "read_range"
	case *pb.Request_Txn:
		return "txn"
	case *pb.Request_Grant:
		return "grant"
	case *pb.Request_Renew:
		return "renew"
	case *pb.Request_Revoke:
		return "revoke"
	case *pb.Request_Session:
		return "session"
	case *pb.Request_Describe:
		return "describe"
	case *pb.Request_List:
		return "list"
	case *pb.Request_CheckToken:
		return "check_token"
	case *pb.Request_ChangeTtl:
		return "change_ttl"
	case *pb.Request_HandOver:
		return "hand_over"
	case *pb.Request_Resume:
		return "resume"
	case *pb.Request_Attach:
		return "attach"
	case *pb.Request_Detach:
		return "detach"
	default:
		return ""
	}
}

// Late implements Late.
func (q *request) Late(of Traced) { q.late = of }

// now is the present instant, if that is of interest.
func (s *Slow) now() time.Time {
	if s.After <= 0 {
		return time.Time{}
	}
	return time.Now()
}

// ended tells of a request that it has its answer, if that is of interest.
func (t *stream) ended(q *request, now time.Time) {
	x := q.trace
	if x == nil && q.kind != "" && now.Sub(q.begun) >= t.o.Slow.After {
		x = t.o.Slow.Call(q.kind, q.begun, q.late)
	}
	if x != nil {
		x.End(api.Error(q.err))
	}
}
