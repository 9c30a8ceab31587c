package nativetest

import (
	"fmt"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
)

// Principals are those that requests are made by. "" has not logged in, and none has no role. The
// owner may do what the writer may, and the leases are its own. The other is another tenant. Bound
// is no user, and has the role of the writer.
var Principals = []string{"", "none", "reader", "writer", "owner", "other", "bound", "root"}

// Users returns the commands that make all users but root, and their roles: keys and names are
// below "a/", but for the other's. The role "spare" is nobody's.
func Users() []fsm.Command {
	commands := []fsm.Command{&fsm.RoleAdd{Name: "spare"}, &fsm.RoleGrant{
		Role: "spare", Permission: access.Permission{Kind: access.See, Key: "a/", End: "a0"},
	}}
	kinds := map[string][2]access.Kind{
		"reader": {access.Read, access.See}, "writer": {access.ReadWrite, access.Hold},
		"owner": {access.ReadWrite, access.Hold}, "other": {access.ReadWrite, access.Manage},
	}
	for _, user := range Principals[1 : len(Principals)-1] {
		commands = append(commands, &fsm.UserAdd{Name: user, NoPassword: true})
		kind, ok := kinds[user]
		if !ok {
			continue
		}
		commands = append(commands,
			&fsm.RoleAdd{Name: user}, &fsm.UserGrantRole{User: user, Role: user})
		key, end := "a/", "a0"
		if user == "other" {
			key, end = "b/", "b0"
		}
		for _, k := range kind {
			commands = append(commands, &fsm.RoleGrant{
				Role: user, Permission: access.Permission{Kind: k, Key: key, End: end},
			})
		}
	}
	return commands
}

// mayBy says which principals may do what needs something, as the declarations mean it.
var mayBy = map[string][]string{
	"NEEDS_NOTHING":           Principals,
	"NEEDS_LOGIN":             Principals[1:],
	"NEEDS_LOGIN_AND_FILTERS": Principals[1:],
	"NEEDS_READ":              {"reader", "writer", "bound", "owner", "root"},
	"NEEDS_WRITE":             {"writer", "bound", "owner", "root"},
	"NEEDS_HOLD_NAME":         {"writer", "bound", "owner", "root"},
	"NEEDS_HOLD_LEASE":        {"owner", "root"},
	"NEEDS_SEE_LEASE":         {"reader", "writer", "bound", "owner", "root"},
	"NEEDS_ROOT":              {"root"},
}

// parts is who may do the samples whose parts say what they need.
var parts = map[string][]string{
	"AttachRequest": {"owner", "root"}, "TxnRequest": {"writer", "bound", "owner", "root"},
}

// May returns the principals that may make a request.
func (r Request) May() ([]string, error) {
	who, ok := mayBy[r.Needs.String()]
	name := r.Body.ProtoReflect().Descriptor().Name()
	if r.Needs == pb.Needs_NEEDS_PARTS {
		who, ok = parts[string(name)]
	}
	if !ok {
		return nil, fmt.Errorf("nobody has said who may do what %v of %s are for", r.Needs, name)
	}
	return who, nil
}
