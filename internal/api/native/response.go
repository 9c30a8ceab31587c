package native

import (
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// respond makes the response of a request.
func (q *request) respond(v *fsm.View) *pb.Response {
	err := q.err
	m := q.response
	if err == nil && m == nil && q.job.permit != nil {
		err = q.job.permit(askerOf(q.stream.ctx, v))
	}
	if err == nil && m == nil {
		if p, ok := q.job.answer.(putting); ok {
			out := q.stream.putReply()
			p.fill(out, v, &q.result)
			out.response.Id = q.id
			return &out.response
		}
		m, err = q.job.answer.answer(v, &q.result)
	}
	var r *pb.Response
	switch {
	case err == nil:
		r = responseOf(m)
	case q.writes:
		r = errorOf(err, api.Reason(err))
	default:
		r = errorOf(err, api.ReadReason(err))
	}
	r.Id, r.More = q.id, q.more
	return r
}

func errorOf(err error, reason pb.Reason) *pb.Response {
	return &pb.Response{Body: &pb.Response_Error{Error: api.ErrorMessage(err, reason)}}
}

// responseOf makes a response of its body.
func responseOf(m proto.Message) *pb.Response {
	switch m := m.(type) {
	case *pb.TxnResponse:
		var out struct {
			response pb.Response
			body     pb.Response_Txn
		}
		out.body.Txn = m
		out.response.Body = &out.body
		return &out.response
	case *pb.GrantResponse:
		var out struct {
			response pb.Response
			body     pb.Response_Grant
		}
		out.body.Grant = m
		out.response.Body = &out.body
		return &out.response
	default:
		r := new(pb.Response)
		setBody(r, m)
		return r
	}
}

// setBody makes m the body of a response.
func setBody(r *pb.Response, m proto.Message) {
	switch m := m.(type) {
	case *pb.PutResponse:
		r.Body = &pb.Response_Put{Put: m}
	case *pb.DeleteResponse:
		r.Body = &pb.Response_DeleteRange{DeleteRange: m}
	case *pb.RangeResponse:
		r.Body = &pb.Response_ReadRange{ReadRange: m}
	case *pb.RenewResponse:
		r.Body = &pb.Response_Renew{Renew: m}
	case *pb.RevokeResponse:
		r.Body = &pb.Response_Revoke{Revoke: m}
	case *pb.SessionResponse:
		r.Body = &pb.Response_Session{Session: m}
	case *pb.EventsResponse:
		r.Body = &pb.Response_Events{Events: m}
	default:
		setLeaseBody(r, m)
	}
}

func setLeaseBody(r *pb.Response, m proto.Message) {
	switch m := m.(type) {
	case *pb.DescribeResponse:
		r.Body = &pb.Response_Describe{Describe: m}
	case *pb.ListResponse:
		r.Body = &pb.Response_List{List: m}
	case *pb.CheckTokenResponse:
		r.Body = &pb.Response_CheckToken{CheckToken: m}
	case *pb.ChangeTTLResponse:
		r.Body = &pb.Response_ChangeTtl{ChangeTtl: m}
	case *pb.HandOverResponse:
		r.Body = &pb.Response_HandOver{HandOver: m}
	case *pb.ResumeResponse:
		r.Body = &pb.Response_Resume{Resume: m}
	case *pb.AttachResponse:
		r.Body = &pb.Response_Attach{Attach: m}
	case *pb.DetachResponse:
		r.Body = &pb.Response_Detach{Detach: m}
	default:
		panic("native: response of unknown type")
	}
}
