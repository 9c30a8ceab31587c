package lease

import (
	"context"
	"errors"
	"io"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ending is a client whose first streams have ended before the request was sent.
type ending struct {
	clientv3.Lease
	tries int
}

func (e *ending) KeepAliveOnce(
	context.Context, clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	if e.tries++; e.tries < 3 {
		return nil, io.EOF
	}
	return nil, errors.New("unknown service")
}

// If a stream ends before a renewal is sent, the error is the stream's and not "EOF".
func TestRenewPrintsStreamError(t *testing.T) {
	if _, err := renew(t.Context(), &ending{}, 77); errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
}
