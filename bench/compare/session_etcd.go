package compare

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdSession uses etcd's clientv3.
type etcdSession struct{ c *clientv3.Client }

// OpenEtcd opens a session with an etcd server.
func OpenEtcd(endpoints []string) (Session, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return etcdSession{c}, nil
}

// Put implements Session.
func (s etcdSession) Put(ctx context.Context, key string, value []byte) error {
	_, err := s.c.Put(ctx, key, string(value))
	return err
}

// Get implements Session.
func (s etcdSession) Get(ctx context.Context, key string) error {
	r, err := s.c.Get(ctx, key)
	if err == nil && len(r.Kvs) != 1 {
		err = fmt.Errorf("bench: got %d pairs for a key that exists", len(r.Kvs))
	}
	return err
}

// etcdLocker has its own lease: a concurrency.Mutex is held by a session.
type etcdLocker struct{ *concurrency.Mutex }

// Locker implements Session.
func (s etcdSession) Locker(ctx context.Context, name string) (Locker, error) {
	own, err := concurrency.NewSession(s.c, concurrency.WithTTL(60))
	if err != nil {
		return nil, err
	}
	return etcdLocker{concurrency.NewMutex(own, name)}, nil
}

// Close implements Session.
func (s etcdSession) Close() error { return s.c.Close() }
