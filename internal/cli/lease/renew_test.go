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

// A renewal whose stream ended before the request was sent says why, and not "EOF".
func TestRenewPrintsStreamError(t *testing.T) {
	if _, err := renew(t.Context(), &ending{}, 77); errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
}
