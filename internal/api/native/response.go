package native

import (
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/wire"
)

// respond creates the response to a request.
func (q *request) respond(v *fsm.View) *pb.Response {
	err := q.err
	m := q.response
	if err == nil && m == nil && q.job.permit != nil {
		err = q.job.permit(authorizerOf(q.stream.ctx, v))
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

// responseOf wraps a body in a response.
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
		wire.SetResponseBody(r, m)
		return r
	}
}
