package client_test

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/lease"
)

// grantedAgain grants in a transaction what was granted before by the request l/r, and a
// lease that was not: it is told which is which, and has the whole TTL of both (T3).
func grantedAgain(t *testing.T, c *client.Client, id lease.ID) {
	r := must[client.TxnResult](t)(c.Txn(ask(t), client.Txn{Then: []client.Op{
		client.Grant{ID: id, TTL: time.Minute, RequestID: "l/r"},
		client.Grant{ID: client.NewLeaseID(), TTL: time.Minute, RequestID: "l/s"},
	}}))
	for i, made := range r.Results {
		if g := made.Grant; g.Existed != (i == 0) || g.Remaining != time.Minute {
			t.Errorf("in a transaction %+v", g)
		}
	}
}
