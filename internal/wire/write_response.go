package wire

import pb "leasehold.dev/api/leasehold/v1"

func (w *writer) serverMessage(m *pb.ServerMessage) {
	w.known(m)
	if m.Leadership != nil {
		end := w.i
		w.standard(m.Leadership)
		w.close(2, end)
	}
	for i := len(m.Responses) - 1; i >= 0; i-- {
		end := w.i
		w.response(m.Responses[i])
		w.close(1, end)
	}
}

func (w *writer) response(m *pb.Response) {
	if m == nil {
		return
	}
	end := w.i
	switch x := m.Body.(type) {
	case *pb.Response_Put:
		w.putResponse(x.Put)
		w.close(4, end)
	case *pb.Response_DeleteRange:
		w.deleteResponse(x.DeleteRange)
		w.close(5, end)
	case *pb.Response_ReadRange:
		w.rangeResponse(x.ReadRange)
		w.close(6, end)
	case *pb.Response_Txn:
		w.txnResponse(x.Txn)
		w.close(7, end)
	case *pb.Response_Grant:
		w.grantResponse(x.Grant)
		w.close(8, end)
	case *pb.Response_Watch:
		w.watchResponse(x.Watch)
		w.close(11, end)
	default:
		w.standard(m)
		return
	}
	w.known(m)
	w.flag(2, m.More)
	w.number(1, m.Id)
}

func (w *writer) header(m *pb.Header) {
	if m == nil {
		return
	}
	w.known(m)
	end := w.i
	w.number(4, m.Term)
	w.number(3, uint64(m.Revision))
	w.number(2, m.MemberId)
	w.number(1, m.ClusterId)
	w.close(1, end)
}

func (w *writer) keyValue(field int, m *pb.KeyValue) {
	end := w.i
	if m != nil {
		w.known(m)
		w.number(6, uint64(m.Lease))
		w.number(5, uint64(m.Version))
		w.number(4, uint64(m.ModRevision))
		w.number(3, uint64(m.CreateRevision))
		w.bytes(2, m.Value)
		w.bytes(1, m.Key)
	}
	w.close(field, end)
}

func (w *writer) keyValues(field int, list []*pb.KeyValue) {
	for i := len(list) - 1; i >= 0; i-- {
		w.keyValue(field, list[i])
	}
}

func (w *writer) putResponse(m *pb.PutResponse) {
	if m == nil {
		return
	}
	w.known(m)
	if m.PrevKv != nil {
		w.keyValue(2, m.PrevKv)
	}
	w.header(m.Header)
}

func (w *writer) deleteResponse(m *pb.DeleteResponse) {
	if m == nil {
		return
	}
	w.known(m)
	w.keyValues(3, m.PrevKvs)
	w.number(2, uint64(m.Deleted))
	w.header(m.Header)
}

func (w *writer) rangeResponse(m *pb.RangeResponse) {
	if m == nil {
		return
	}
	w.known(m)
	w.number(5, m.CacheTerm)
	w.number(4, uint64(m.Count))
	w.flag(3, m.More)
	w.keyValues(2, m.Kvs)
	w.header(m.Header)
}

func (w *writer) txnResponse(m *pb.TxnResponse) {
	if m == nil {
		return
	}
	w.known(m)
	if m.WaitRefused != nil {
		end := w.i
		w.standard(m.WaitRefused)
		w.close(5, end)
	}
	if m.Ticket != nil {
		end := w.i
		w.ticket(m.Ticket)
		w.close(4, end)
	}
	for i := len(m.Responses) - 1; i >= 0; i-- {
		end := w.i
		w.opResponse(m.Responses[i])
		w.close(3, end)
	}
	w.flag(2, m.Succeeded)
	w.header(m.Header)
}

func (w *writer) ticket(m *pb.Ticket) {
	w.known(m)
	w.number(5, uint64(m.Lease))
	w.number(4, uint64(m.Why))
	w.bytes(3, m.After)
	w.number(2, uint64(m.CreateRevision))
	w.number(1, uint64(m.State))
}

func (w *writer) opResponse(m *pb.OpResponse) {
	if m == nil {
		return
	}
	end := w.i
	switch x := m.Response.(type) {
	case *pb.OpResponse_Put:
		w.putResponse(x.Put)
		w.close(1, end)
	case *pb.OpResponse_DeleteRange:
		w.deleteResponse(x.DeleteRange)
		w.close(2, end)
	case *pb.OpResponse_ReadRange:
		w.rangeResponse(x.ReadRange)
		w.close(3, end)
	case *pb.OpResponse_Txn:
		w.txnResponse(x.Txn)
		w.close(4, end)
	case *pb.OpResponse_Grant:
		w.grantResponse(x.Grant)
		w.close(5, end)
	case *pb.OpResponse_Revoke:
		w.set(7, uint64(x.Revoke))
	case *pb.OpResponse_DrawToken:
		w.set(8, x.DrawToken)
	default:
		w.standard(m)
		return
	}
	w.known(m)
}

func (w *writer) grantResponse(m *pb.GrantResponse) {
	if m == nil {
		return
	}
	w.known(m)
	w.flag(4, m.Existed)
	w.bytes(3, m.Secret)
	if m.Lease != nil {
		end := w.i
		w.lease(m.Lease)
		w.close(2, end)
	}
	w.header(m.Header)
}

func (w *writer) lease(m *pb.Lease) {
	if len(m.Labels)+len(m.Keys)+len(m.Holds) > 0 {
		w.standard(m)
		return
	}
	w.known(m)
	w.text(15, m.Principal)
	w.flag(14, m.Bound)
	w.number(12, uint64(m.KeyCount))
	w.flag(10, m.Delayed)
	w.number(9, uint64(m.AtExpiry))
	w.number(8, uint64(m.LockDelayMs))
	w.text(6, m.Owner)
	w.text(5, m.Name)
	w.number(4, uint64(m.RemainingMs))
	w.number(3, uint64(m.TtlMs))
	w.number(2, m.Token)
	w.number(1, uint64(m.Id))
}

func (w *writer) watchResponse(m *pb.WatchResponse) {
	if m == nil {
		return
	}
	w.known(m)
	w.flag(3, m.Fragment)
	for i := len(m.Events) - 1; i >= 0; i-- {
		end := w.i
		w.event(m.Events[i])
		w.close(2, end)
	}
	w.header(m.Header)
}

func (w *writer) event(m *pb.Event) {
	if m == nil {
		return
	}
	w.known(m)
	w.number(5, uint64(m.Lease))
	w.number(4, uint64(m.Why))
	if m.PrevKv != nil {
		w.keyValue(3, m.PrevKv)
	}
	if m.Kv != nil {
		w.keyValue(2, m.Kv)
	}
	w.number(1, uint64(m.Kind))
}
