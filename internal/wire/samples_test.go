package wire

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// fresh returns an empty message of the same type as m.
func fresh(m proto.Message) proto.Message { return m.ProtoReflect().New().Interface() }

// samples returns typical messages with 64 parts each.
func samples() map[string]proto.Message {
	return map[string]proto.Message{
		"put":            requests(putSample),
		"get":            requests(getSample),
		"lock":           requests(lockSample),
		"unlock":         requests(unlockSample),
		"grant":          requests(grantSample),
		"put-response":   responses(putResponseSample),
		"get-response":   responses(getResponseSample),
		"lock-response":  responses(lockResponseSample),
		"grant-response": responses(grantResponseSample),
		"watch-response": responses(watchResponseSample),
	}
}

const someLease = 0x0b06a0efa7b451eb

func requests(of func(key []byte) *pb.Request) *pb.ClientMessage {
	m := &pb.ClientMessage{
		Session: &pb.SessionRef{Id: someLease, Nonce: 0xb451ebb451ebb451}, AcknowledgedBelow: 123456,
	}
	for i := range 64 {
		r := of(fmt.Appendf(nil, "locks/%06d/%x", i, int64(someLease)))
		r.Id, r.TimeoutMs = uint64(100000+i), 4998
		m.Requests = append(m.Requests, r)
	}
	return m
}

func value() []byte { return bytes.Repeat([]byte{'v'}, 128) }

func putSample(key []byte) *pb.Request {
	return &pb.Request{
		Number: 123457, Body: &pb.Request_Put{Put: &pb.PutRequest{Key: key, Value: value()}},
	}
}

func getSample(key []byte) *pb.Request {
	return &pb.Request{Body: &pb.Request_ReadRange{ReadRange: &pb.RangeRequest{Key: key}}}
}

func lockSample(key []byte) *pb.Request {
	return &pb.Request{Number: 123457, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Target: &pb.Compare_CreateRevision{}}},
		Success: []*pb.Op{
			{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key, Lease: someLease}}},
			{Op: &pb.Op_DrawToken{DrawToken: &pb.DrawTokenRequest{}}},
		},
		Failure: []*pb.Op{{Op: &pb.Op_ReadRange{ReadRange: &pb.RangeRequest{Key: key}}}},
		Wait:    &pb.Wait{Key: key, Prefix: key[:13], Permits: 1},
	}}}
}

func unlockSample(key []byte) *pb.Request {
	return &pb.Request{Number: 123457, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: key, Target: &pb.Compare_CreateRevision{CreateRevision: 98765},
		}},
		Success: []*pb.Op{{Op: &pb.Op_DeleteRange{DeleteRange: &pb.DeleteRequest{Key: key}}}},
	}}}
}

func grantSample(key []byte) *pb.Request {
	return &pb.Request{Number: 123457, Body: &pb.Request_Grant{Grant: &pb.GrantRequest{
		TtlMs: 10000, Name: string(key), Owner: "node-a",
	}}}
}

func responses(of func(key []byte) *pb.Response) *pb.ServerMessage {
	m := &pb.ServerMessage{}
	for i := range 64 {
		r := of(fmt.Appendf(nil, "locks/%06d/%x", i, int64(someLease)))
		r.Id = uint64(100000 + i)
		m.Responses = append(m.Responses, r)
	}
	return m
}

func header() *pb.Header {
	return &pb.Header{
		ClusterId: 0xb451ebb451ebb451, MemberId: 0xc451ebb451ebb451, Revision: 98765, Term: 7,
	}
}

func pair(key []byte) *pb.KeyValue {
	return &pb.KeyValue{
		Key: key, Value: value(), CreateRevision: 12345, ModRevision: 98765, Version: 77,
	}
}

func putResponseSample([]byte) *pb.Response {
	return &pb.Response{Body: &pb.Response_Put{Put: &pb.PutResponse{Header: header()}}}
}

func getResponseSample(key []byte) *pb.Response {
	return &pb.Response{Body: &pb.Response_ReadRange{ReadRange: &pb.RangeResponse{
		Header: header(), Count: 1, Kvs: []*pb.KeyValue{pair(key)},
	}}}
}

func lockResponseSample([]byte) *pb.Response {
	return &pb.Response{More: true, Body: &pb.Response_Txn{Txn: &pb.TxnResponse{
		Header: header(), Succeeded: true,
		Responses: []*pb.OpResponse{
			{Response: &pb.OpResponse_Put{Put: &pb.PutResponse{}}},
			{Response: &pb.OpResponse_DrawToken{DrawToken: 4711}},
		},
		Ticket: &pb.Ticket{State: pb.Ticket_STATE_READY, CreateRevision: 98765},
	}}}
}

func grantResponseSample(key []byte) *pb.Response {
	return &pb.Response{Body: &pb.Response_Grant{Grant: &pb.GrantResponse{
		Header: header(), Lease: &pb.Lease{
			Id: someLease, Token: 4711, TtlMs: 10000, RemainingMs: 10000,
			Name: string(key), Owner: "node-a",
		},
	}}}
}

func watchResponseSample(key []byte) *pb.Response {
	return &pb.Response{More: true, Body: &pb.Response_Watch{Watch: &pb.WatchResponse{
		Header: header(), Events: []*pb.Event{
			{Kv: pair(key)},
			{
				Kind: pb.Event_KIND_DELETE, Kv: &pb.KeyValue{Key: key, ModRevision: 98765},
				PrevKv: pair(key), Cause: pb.Event_CAUSE_EXPIRED, Lease: someLease,
			},
		},
	}}}
}
