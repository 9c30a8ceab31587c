package native

import (
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
)

// number identifies a write within a session. A write with a number is executed only once, even if
// it is sent several times. The zero value means that the write has no number.
type number struct {
	session fsm.Session
	settled uint64
	n       uint64
}

// numberOf returns the number of a request, using the session in its message.
func numberOf(m *pb.ClientMessage, r *pb.Request) (number, error) {
	switch {
	case r.Number == 0:
		return number{}, nil
	case m.Session == nil:
		return number{}, invalid("request %d has number %d, but no session", r.Id, r.Number)
	}
	return number{
		session: fsm.Session{ID: m.Session.Id, Nonce: m.Session.Nonce},
		settled: m.AcknowledgedBelow, n: r.Number,
	}, nil
}

// plus returns the number increased by i. The zero value is returned unchanged.
func (n number) plus(i int) number {
	if n.n != 0 {
		n.n += uint64(i)
	}
	return n
}

// once returns a command that executes c only if the number is new.
func (n number) once(c fsm.Command) fsm.Command {
	if n.n == 0 {
		return c
	}
	return &fsm.Once{Session: n.session, Number: n.n, Settled: n.settled, Command: c}
}

// sessionJob returns a job that opens a session.
func (s *store) sessionJob(r *pb.SessionRequest) (job, error) {
	open := func(v *fsm.View, res *fsm.Result) (proto.Message, error) {
		session := res.Value.(fsm.Session)
		return &pb.SessionResponse{
			Header:  s.header(v, res.Revision),
			Session: &pb.SessionRef{Id: session.ID, Nonce: session.Nonce},
		}, nil
	}
	return job{command: &fsm.OpenSession{Nonce: r.Nonce}, answer: answer(open)}, nil
}
