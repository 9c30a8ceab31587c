package bubble

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/history"
)

// Access control is enabled in some runs. The ordinary clients then share one user with full
// access. There are also short-lived tenants: users who can read the registers until the test
// removes that permission.

// The users in a run with access control.
const (
	rootUser   = "root"
	workerUser = "worker"
	relayUser  = "relay"
)

// hasUsers reports whether access control is enabled. The result depends only on the seed.
func hasUsers(seed uint64) bool { return rand.New(rand.NewPCG(seed, 6)).IntN(3) == 0 }

// login returns the name and password of a user. Both are empty without access control.
func (w *World) login(user string) (name, password string) {
	if !w.users {
		return "", ""
	}
	return user, "password of " + user
}

// steps runs the functions in order until one fails.
func steps(list ...func() error) error {
	for _, step := range list {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// addUsers enables access control.
func (w *World) addUsers() error {
	if !w.users {
		return nil
	}
	w.users = false                          // logging in is not possible yet
	p, err := w.begin(auditorName, rootUser) // relays are not running yet
	w.users = true
	if err != nil {
		return err
	}
	defer p.end(false)
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	names := pb.NewAccessServiceClient(p.etcd.ActiveConnection())
	return steps(
		func() error { return w.addUser(ctx, p, rootUser) },
		func() error { return w.addUser(ctx, p, relayUser) },
		func() error { return w.addUser(ctx, p, workerUser) },
		func() error {
			all := store.KeyRange{Key: "\x00", End: "\x00"}
			return p.permit(ctx, workerUser, all, int32(clientv3.PermReadWrite))
		},
		func() error {
			_, err := names.GrantNames(ctx, &pb.GrantNamesRequest{Permission: &pb.NamePermission{
				Role: workerUser, Prefix: true, Kind: pb.NamePermission_KIND_MANAGE,
			}})
			return err
		},
		func() error { _, err := p.etcd.AuthEnable(ctx); return err },
	)
}

// addUser creates a user and grants it a new role of the same name.
func (w *World) addUser(ctx context.Context, p *process, name string) error {
	_, password := w.login(name)
	return steps(
		func() error { _, err := p.etcd.RoleAdd(ctx, name); return err },
		func() error { _, err := p.etcd.UserAdd(ctx, name, password); return err },
		func() error { _, err := p.etcd.UserGrantRole(ctx, name, name); return err },
	)
}

// permit grants a role a permission for keys.
func (p *process) permit(
	ctx context.Context, role string, keys store.KeyRange, to int32,
) error {
	may := clientv3.PermissionType(to)
	_, err := p.etcd.RoleGrantPermission(ctx, role, keys.Key, keys.End, may)
	return err
}

// tenants grants a new user read permission on the registers and revokes it after a while. The
// user's process keeps running for some time afterward, and must not receive anything more.
func tenants(p *process) error {
	ctx, cancel := p.within(30 * time.Second)
	defer cancel()
	name := "tenant" + p.w.unique()
	err := steps(
		func() error { return p.w.addUser(ctx, p, name) },
		func() error {
			return p.permit(ctx, name, store.Prefix(registers), int32(clientv3.PermRead))
		},
	)
	if err != nil {
		return err
	}
	tenant, err := p.w.begin(name, name)
	if err != nil {
		return err
	}
	defer tenant.end(p.intn(2) == 0)
	combine(watch, watch, storeKeys, storeEtcd, cached)(tenant)
	p.sleep(time.Second, time.Minute)
	if err := p.take(name); err != nil {
		return err // the tenant may still have the permission
	}
	p.sleep(time.Second, 20*time.Second)
	return nil
}

// take revokes a tenant's permission in one of several ways.
func (p *process) take(name string) (err error) {
	ctx, cancel := p.within(20 * time.Second)
	defer cancel()
	users := etcdserverpb.NewAuthClient(p.etcd.ActiveConnection())
	all := store.Prefix(registers)
	var r interface {
		GetHeader() *etcdserverpb.ResponseHeader
	}
	switch p.intn(4) {
	case 0:
		r, err = users.RoleRevokePermission(ctx, &etcdserverpb.AuthRoleRevokePermissionRequest{
			Role: name, Key: []byte(all.Key), RangeEnd: []byte(all.End),
		})
	case 1:
		r, err = users.UserRevokeRole(ctx, &etcdserverpb.AuthUserRevokeRoleRequest{
			Name: name, Role: name,
		})
	case 2:
		r, err = users.RoleDelete(ctx, &etcdserverpb.AuthRoleDeleteRequest{Role: name})
	default:
		r, err = users.UserDelete(ctx, &etcdserverpb.AuthUserDeleteRequest{Name: name})
	}
	if err == nil {
		p.w.h.take(name, r.GetHeader().GetRevision())
	}
	return err
}

// taken records when a tenant lost its read permission on the registers.
type taken struct {
	revision int64 // store revision
	at       int64
}

// take records that a client has lost its read permission.
func (h *record) take(name string, revision int64) {
	h.Count("rights taken away")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken[name] = taken{revision, h.Stamp()}
}

// checkRights checks A1: a tenant receives nothing after it has lost its permission, and never
// changes anything.
func (h *record) checkRights() {
	for _, v := range h.Watches() {
		lost, ok := h.taken[v.By]
		for at, text := range v.Changes {
			if ok && at > lost.revision {
				h.Violate("A1", "the watch of %s got %s at revision %d; its permission ended at %d",
					v.By, text, at, lost.revision)
			}
		}
	}
	for _, o := range h.Ops() {
		who, _, _ := strings.Cut(o.By, "/")
		if lost, ok := h.taken[who]; ok && o.Done() && (o.Kind != history.Get || o.CallStamp() > lost.at) {
			h.Violate("A1", "%s had no permission for this; its read permission ended at revision %d: %v",
				who, lost.revision, o)
		}
	}
}

// refuse records a violation if a client is denied an operation that it is always allowed to
// perform.
func (h *record) refuse(p *process, err error) {
	if p.user == workerUser && errors.Is(err, client.ErrPermissionDenied) {
		h.Violate("A1", "%s was refused what it may do: %v", p.on.Name, err)
	}
}
