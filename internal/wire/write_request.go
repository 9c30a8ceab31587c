package wire

import pb "leasehold.dev/api/leasehold/v1"

func (w *writer) clientMessage(m *pb.ClientMessage) {
	w.known(m)
	w.number(3, m.Settled)
	if m.Session != nil {
		end := w.i
		w.known(m.Session)
		w.number(2, m.Session.Nonce)
		w.number(1, m.Session.Id)
		w.close(2, end)
	}
	for i := len(m.Requests) - 1; i >= 0; i-- {
		end := w.i
		w.request(m.Requests[i])
		w.close(1, end)
	}
}

func (w *writer) request(m *pb.Request) {
	if m == nil {
		return
	}
	w.known(m)
	begin := w.i
	w.text(25, m.Traceparent)
	w.number(20, m.Number)
	end := w.i
	switch x := m.Body.(type) {
	case *pb.Request_Cancel:
		w.set(3, x.Cancel)
	case *pb.Request_Put:
		w.putRequest(x.Put)
		w.close(4, end)
	case *pb.Request_DeleteRange:
		w.deleteRequest(x.DeleteRange)
		w.close(5, end)
	case *pb.Request_ReadRange:
		w.rangeRequest(x.ReadRange)
		w.close(6, end)
	case *pb.Request_Txn:
		w.txnRequest(x.Txn)
		w.close(7, end)
	case *pb.Request_Grant:
		w.grantRequest(x.Grant)
		w.close(8, end)
	default:
		w.i = begin
		w.standard(m)
		return
	}
	w.number(2, uint64(m.TimeoutMs))
	w.number(1, m.Id)
}

func (w *writer) putRequest(m *pb.PutRequest) {
	if m == nil {
		return
	}
	w.known(m)
	if m.LeaseRef != nil {
		end := w.i
		w.leaseRef(m.LeaseRef)
		w.close(8, end)
	}
	w.number(7, uint64(m.TtlMs))
	w.flag(6, m.IgnoreLease)
	w.flag(5, m.IgnoreValue)
	w.flag(4, m.PrevKv)
	w.number(3, uint64(m.Lease))
	w.bytes(2, m.Value)
	w.bytes(1, m.Key)
}

func (w *writer) deleteRequest(m *pb.DeleteRequest) {
	if m == nil {
		return
	}
	w.known(m)
	w.flag(3, m.PrevKv)
	w.bytes(2, m.RangeEnd)
	w.bytes(1, m.Key)
}

func (w *writer) rangeRequest(m *pb.RangeRequest) {
	if m == nil {
		return
	}
	w.known(m)
	if m.Cache != nil {
		end := w.i
		w.leaseRef(m.Cache)
		w.close(8, end)
	}
	w.flag(7, m.CountOnly)
	w.flag(6, m.KeysOnly)
	w.flag(5, m.Serializable)
	w.number(4, uint64(m.Revision))
	w.number(3, uint64(m.Limit))
	w.bytes(2, m.RangeEnd)
	w.bytes(1, m.Key)
}

func (w *writer) leaseRef(m *pb.LeaseRef) {
	if m == nil {
		return
	}
	w.known(m)
	w.text(3, m.Name)
	w.number(2, m.Token)
	w.number(1, uint64(m.Id))
}

func (w *writer) grantRequest(m *pb.GrantRequest) {
	if m == nil {
		return
	}
	if len(m.Labels)+len(m.Keys)+len(m.Holds) > 0 {
		w.standard(m)
		return
	}
	w.known(m)
	w.text(12, m.Principal)
	w.flag(10, m.Resumable)
	w.number(8, uint64(m.AtExpiry))
	w.number(7, uint64(m.LockDelayMs))
	w.text(6, m.RequestId)
	w.text(4, m.Owner)
	w.text(3, m.Name)
	w.number(2, uint64(m.TtlMs))
	w.number(1, uint64(m.Id))
}

func (w *writer) txnRequest(m *pb.TxnRequest) {
	if m == nil {
		return
	}
	w.known(m)
	if m.Wait != nil {
		end := w.i
		w.wait(m.Wait)
		w.close(4, end)
	}
	w.ops(3, m.Failure)
	w.ops(2, m.Success)
	for i := len(m.Compare) - 1; i >= 0; i-- {
		end := w.i
		w.compare(m.Compare[i])
		w.close(1, end)
	}
}

func (w *writer) wait(m *pb.Wait) {
	w.known(m)
	if m.Beside != nil {
		w.setBytes(4, m.Beside)
	}
	w.number(3, uint64(m.Permits))
	w.bytes(2, m.Prefix)
	w.bytes(1, m.Key)
}

func (w *writer) compare(m *pb.Compare) {
	if m == nil {
		return
	}
	w.known(m)
	end := w.i
	switch x := m.Target.(type) {
	case nil:
	case *pb.Compare_Version:
		w.set(4, uint64(x.Version))
	case *pb.Compare_CreateRevision:
		w.set(5, uint64(x.CreateRevision))
	case *pb.Compare_ModRevision:
		w.set(6, uint64(x.ModRevision))
	case *pb.Compare_Value:
		w.setBytes(7, x.Value)
	case *pb.Compare_Lease:
		w.set(8, uint64(x.Lease))
	case *pb.Compare_LeaseAlive:
		w.set(9, uint64(x.LeaseAlive))
	case *pb.Compare_NameToken:
		if n := x.NameToken; n != nil {
			w.known(n)
			w.number(2, n.Token)
			w.text(1, n.Name)
		}
		w.close(10, end)
	default:
		w.odd = true
	}
	w.bytes(3, m.RangeEnd)
	w.bytes(2, m.Key)
	w.number(1, uint64(m.Relation))
}

func (w *writer) ops(field int, list []*pb.Op) {
	for i := len(list) - 1; i >= 0; i-- {
		end := w.i
		w.op(list[i])
		w.close(field, end)
	}
}

func (w *writer) op(m *pb.Op) {
	if m == nil {
		return
	}
	w.known(m)
	end := w.i
	switch x := m.Op.(type) {
	case *pb.Op_Put:
		w.putRequest(x.Put)
		w.close(1, end)
	case *pb.Op_DeleteRange:
		w.deleteRequest(x.DeleteRange)
		w.close(2, end)
	case *pb.Op_ReadRange:
		w.rangeRequest(x.ReadRange)
		w.close(3, end)
	case *pb.Op_Txn:
		w.txnRequest(x.Txn)
		w.close(4, end)
	case *pb.Op_Grant:
		w.grantRequest(x.Grant)
		w.close(5, end)
	case *pb.Op_Renew:
		w.leaseRef(x.Renew)
		w.close(6, end)
	case *pb.Op_Revoke:
		w.leaseRef(x.Revoke)
		w.close(7, end)
	case *pb.Op_DrawToken:
		if x.DrawToken != nil {
			w.known(x.DrawToken)
		}
		w.close(8, end)
	default:
		w.i = end
		w.standard(m)
	}
}
