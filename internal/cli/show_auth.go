package cli

import (
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// rootRole is the role that may do everything, without a permission that says so.
const rootRole = "root"

// withHeader is any response of which only the header is data.
type withHeader interface{ GetHeader() *pb.ResponseHeader }

// showLine shows a response that says no more than "done".
func showLine(r withHeader, format string, args ...any) answer {
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf(format+"\n", args...)
	}, fields: func(p *page) {
		p.header(r.GetHeader())
	}}
}

func showAuthStatus(resp *clientv3.AuthStatusResponse) answer {
	r := (*pb.AuthStatusResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("Authentication Status: %v\n", r.GetEnabled())
		p.printf("AuthRevision: %d\n", r.GetAuthRevision())
	}}
}

func showUserGet(user string, resp *clientv3.AuthUserGetResponse) answer {
	r := (*pb.AuthUserGetResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("User: %s\nRoles:", readable(user))
		for _, role := range r.GetRoles() {
			p.printf(" %s", readable(role))
		}
		p.printf("\n")
	}}
}

func showUserList(resp *clientv3.AuthUserListResponse) answer {
	r := (*pb.AuthUserListResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		for _, user := range r.GetUsers() {
			p.printf("%s\n", readable(user))
		}
	}}
}

// showRoleRevokePermission names the role and the key as the user did.
func showRoleRevokePermission(
	args []string, end string, resp *clientv3.AuthRoleRevokePermissionResponse,
) answer {
	r, role, key := (*pb.AuthRoleRevokePermissionResponse)(resp), args[0], args[1]
	switch end {
	case "":
		return showLine(r, "Permission of key %s is revoked from role %s", key, role)
	case "\x00":
		return showLine(r, "Permission of range [%s, <open ended> is revoked from role %s",
			key, role)
	}
	return showLine(r, "Permission of range [%s, %s) is revoked from role %s", key, end, role)
}

func showRoleList(resp *clientv3.AuthRoleListResponse) answer {
	r := (*pb.AuthRoleListResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		for _, role := range r.GetRoles() {
			p.printf("%s\n", readable(role))
		}
	}, fields: func(p *page) {
		p.header(r.GetHeader())
		p.printf("%q :", "Roles")
		for _, role := range r.GetRoles() {
			p.printf(" %q", role)
		}
		p.printf("\n")
	}}
}

func showRoleGet(role string, resp *clientv3.AuthRoleGetResponse) answer {
	r := (*pb.AuthRoleGetResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		p.printf("Role %s\n", readable(role))
		perms := r.GetPerm()
		if role == rootRole && perms == nil {
			perms = []*authpb.Permission{{
				PermType: authpb.Permission_READWRITE, RangeEnd: []byte{0},
			}}
		}
		p.printf("KV Read:\n")
		p.permissions(perms, authpb.Permission_READ)
		p.printf("KV Write:\n")
		p.permissions(perms, authpb.Permission_WRITE)
	}, fields: func(p *page) {
		p.header(r.GetHeader())
		for _, perm := range r.GetPerm() {
			p.field("PermType", " "+perm.GetPermType().String()) // two blanks, as ever
			p.quoted("Key", string(perm.GetKey()))
			p.quoted("RangeEnd", string(perm.GetRangeEnd()))
		}
	}}
}

// permissions lists the keys that may be read, or written.
func (p *page) permissions(perms []*authpb.Permission, kind authpb.Permission_Type) {
	for _, perm := range perms {
		if t := perm.GetPermType(); t != kind && t != authpb.Permission_READWRITE {
			continue
		}
		key, end := string(perm.GetKey()), string(perm.GetRangeEnd())
		shown := readable(key)
		switch end {
		case "":
			p.printf("\t%s\n", shown)
			continue
		case "\x00":
			p.printf("\t[%s, <open ended>", shown)
		default:
			p.printf("\t[%s, %s)", shown, readable(end))
		}
		if key != "" && clientv3.GetPrefixRangeEnd(key) == end {
			p.printf(" (prefix %s)", shown)
		}
		p.printf("\n")
	}
}
