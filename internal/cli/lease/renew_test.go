package lease

import (
	"context"
	"errors"
	"io"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ending is a client whose first streams end before the request is sent.
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

// TestRenewPrintsStreamError checks that renew returns the stream's own error, and not "EOF", if
// the stream ends before the renewal is sent.
func TestRenewPrintsStreamError(t *testing.T) {
	if _, err := renew(t.Context(), &ending{}, 77); errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
}
