package client

import (
	"context"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
)

// echo is a member that does nothing, and answers requests as soon as there are so many that
// a commit may be for all of them: what a call takes with it is what the client takes. It makes
// as little as it can, and shares what is only read.
type echo struct {
	grpc.ClientStream
	ctx context.Context
	out chan *pb.ServerMessage
	// together is how many requests it answers together, and messages how many messages it
	// has received.
	together, messages atomic.Int64
	waiting            []*pb.Request
	// leaving are the requests that were cancelled: their last responses come with the next
	// message.
	leaving []uint64
	leases  int64 // how many were granted
}

// StartEcho returns a client of an echo, until the benchmark ends; together tells it how many
// requests to answer together, and messages how many messages it has received.
func StartEcho(b *testing.B) (c *Client, together func(int), messages func() int64) {
	b.Helper()
	e := &echo{out: make(chan *pb.ServerMessage, 1000)}
	c, err := start(Config{}, make([]endpoint, 1), func(endpoint, *settings) (connection, error) {
		return e, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return c, func(n int) { e.together.Store(int64(n)) }, e.messages.Load
}

// Open implements connection.
func (e *echo) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	e.ctx = ctx
	return e, nil
}

func (e *echo) Close() error { return nil }

func (e *echo) Context() context.Context { return e.ctx }

func (e *echo) Recv() (*pb.ServerMessage, error) {
	select {
	case m := <-e.out:
		return m, nil
	case <-e.ctx.Done():
		return nil, status.Error(codes.Canceled, "the client has closed the stream")
	}
}

func (e *echo) Send(m *pb.ClientMessage) error {
	e.messages.Add(1)
	for _, r := range m.Requests {
		switch x := r.Body.(type) {
		case *pb.Request_Cancel:
			e.leaving = append(e.leaving, x.Cancel)
		case *pb.Request_Session:
			e.out <- &pb.ServerMessage{Responses: []*pb.Response{{Id: r.Id, Body: echoSession}}}
		default:
			e.waiting = append(e.waiting, r)
		}
	}
	if n := len(e.waiting); n == 0 || n < int(e.together.Load()) {
		return nil
	}
	n := len(e.leaving)
	list := make([]pb.Response, n+len(e.waiting))
	for i, id := range e.leaving {
		list[i].Id, list[i].Body = id, echoUnknown
	}
	for i, r := range e.waiting {
		e.answer(r, &list[n+i])
	}
	e.leaving, e.waiting = e.leaving[:0], e.waiting[:0]
	out := &pb.ServerMessage{Responses: make([]*pb.Response, len(list))}
	for i := range list {
		out.Responses[i] = &list[i]
	}
	e.out <- out
	return nil
}

// answer makes a new response the answer to a request.
func (e *echo) answer(r *pb.Request, m *pb.Response) {
	m.Id = r.Id
	switch x := r.Body.(type) {
	case *pb.Request_Put:
		m.Body = echoPut
	case *pb.Request_ReadRange:
		m.Body = echoRange
	case *pb.Request_Txn:
		m.Body = echoTxn
		if x.Txn.Wait != nil {
			m.Body, m.More = echoTicket, true
		}
	case *pb.Request_Grant:
		e.leases++
		m.Body = &pb.Response_Grant{Grant: &pb.GrantResponse{
			Header: echoHeader,
			Lease:  &pb.Lease{Id: e.leases, Token: 1, TtlMs: echoTTL, RemainingMs: echoTTL},
		}}
	default:
		panic(r.String())
	}
}

// echoTTL is the TTL of an echo's leases, in milliseconds.
const echoTTL = 3600_000

// What an echo answers.
var (
	echoHeader  = &pb.Header{ClusterId: 1, MemberId: 1, Revision: 1, Term: 1}
	echoUnknown = &pb.Response_Error{Error: &pb.Error{Reason: pb.Reason_REASON_UNKNOWN_OUTCOME}}
	echoPut     = &pb.Response_Put{Put: &pb.PutResponse{Header: echoHeader}}
	echoRange   = &pb.Response_ReadRange{ReadRange: &pb.RangeResponse{
		Header: echoHeader, Count: 1, Kvs: []*pb.KeyValue{{
			Key: []byte("bench/1"), Value: make([]byte, 128), CreateRevision: 1, ModRevision: 1,
			Version: 1,
		}},
	}}
	echoTxn = &pb.Response_Txn{Txn: &pb.TxnResponse{
		Header: echoHeader, Succeeded: true, Responses: []*pb.OpResponse{echoDeleted},
	}}
	echoTicket = &pb.Response_Txn{Txn: &pb.TxnResponse{
		Header: echoHeader, Succeeded: true, Responses: []*pb.OpResponse{
			{Response: &pb.OpResponse_Put{Put: echoPut.Put}},
			{Response: &pb.OpResponse_DrawToken{DrawToken: 7}},
		},
		Ticket: &pb.Ticket{State: pb.Ticket_STATE_READY, CreateRevision: 5},
	}}
	echoDeleted = &pb.OpResponse{Response: &pb.OpResponse_DeleteRange{DeleteRange: &pb.DeleteResponse{
		Header: echoHeader, Deleted: 1,
	}}}
	echoSession = &pb.Response_Session{Session: &pb.SessionResponse{
		Session: &pb.SessionRef{Id: 1, Nonce: 1},
	}}
)
