// Package serve is the command "leasehold serve": it turns flags and
// environment variables, named as etcd's where they mean the same, into a
// [server.Config], and runs one member until a signal ends it.
//
// It can replace etcd. [Args] makes the binary behave as etcd when it is called so. A flag of
// etcd's without meaning here is accepted with a warning; a flag that etcd does not know either
// is an error with a hint.
//
// With --join a member joins a running cluster in one command: the joiner adds it to the cluster,
// starts it, and has it promoted. [DevCommand] runs a whole cluster in one process, for trying
// things. [InitCommand] founds a cluster and runs nothing.
//
// The package holds no logic of a member, and reads the process's environment
// only where [Command] wires it.
package serve
