package nativetest

import (
	"fmt"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
)

// Principals lists the principals that make requests. "" is anonymous. "none" is a user without
// roles. "owner" has the same permissions as "writer" and also owns the leases. "other" is another
// tenant. "bound" is not a user but has the writer's role.
var Principals = []string{"", "none", "reader", "writer", "owner", "other", "bound", "root"}

// Users returns the commands that create the roles and all users except root. The permitted keys
// and names begin with "a/", except for the user "other". No user has the role "spare".
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

// mayBy lists the principals that satisfy each need.
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

// parts lists the principals that may send each sample request whose parts declare their own needs.
var parts = map[string][]string{
	"AttachRequest": {"owner", "root"}, "TxnRequest": {"writer", "bound", "owner", "root"},
}

// May returns the principals that may make the request.
func (r Request) May() ([]string, error) {
	who, ok := mayBy[r.Needs.String()]
	name := r.Body.ProtoReflect().Descriptor().Name()
	if r.Needs == pb.Needs_NEEDS_PARTS {
		who, ok = parts[string(name)]
	}
	if !ok {
		return nil, fmt.Errorf("no principals are listed for %v of %s", r.Needs, name)
	}
	return who, nil
}
