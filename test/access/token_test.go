package access

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// startSingle runs a single member with access control, whose only user is root. Tokens are signed
// and valid for one second. The client has such a token.
func startSingle(t *testing.T) (*inprocess.Member, *clientv3.Client) {
	t.Helper()
	dir := inprocess.Dir(t)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := inprocess.Config(dir, "m")
	cfg.Access.Token = "jwt,priv-key=" + key + ",sign-method=HS256,ttl=1s"
	m := inprocess.Start(t, cfg)
	m.Await()
	open := inprocess.Etcd(t, m.Endpoint())
	ctx := timeout(t)
	_, err := open.UserAdd(ctx, "root", "root")
	if err == nil {
		_, err = open.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = open.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.Endpoint()}, Username: "root", Password: "root",
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(inprocess.Dialer(t))},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return m, root
}

// TestT23TokenExpires lets a user's token expire. The lease survives because its keep-alive stream
// still belongs to its user. A lease without renewals expires, because no member needs a token to
// end it (T23, etcd #13975, #14616).
func TestT23TokenExpires(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m, root := startSingle(t)
		ctx := timeout(t)
		holder := connectAs(t, "root", m)
		held, err := holder.Grant(ctx, client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		got, err := root.Authenticate(ctx, "root", "root")
		if err != nil {
			t.Fatal(err)
		}
		for ended := false; !ended; {
			c := inprocess.Connect(t, client.Config{Token: got.Token}, m.Endpoint())
			_, err := c.Range(ctx, store.Range{Key: "k"})
			if ended = errors.Is(err, client.ErrNotLoggedIn); err != nil && !ended {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := held.Err(); err != nil {
			t.Errorf("the lease ended: %v", err)
		}
		watch := openWatch(t, holder, store.Watch{Key: "k", NoPut: true})
		if _, err := holder.GrantOnly(ctx, client.Grant{
			TTL: 200 * time.Millisecond, Keys: []store.KV{{Key: "k"}},
		}); err != nil {
			t.Errorf("grant over the old stream: %v", err)
		}
		u, err := watch.Next(ctx)
		if err != nil || !u.Events[0].Delete || u.Events[0].Cause != store.Expired {
			t.Errorf("the key was not deleted with its lease: %+v, %v", u, err)
		}
	})
}
