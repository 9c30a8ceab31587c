// Package serve is the command "leasehold serve". It makes a [server.Config] of flags and
// environment variables, which have etcd's names where they mean the same, and runs one member
// until a signal ends it.
//
// It can replace etcd. [Args] makes the binary behave as etcd if it is called so. Flags of etcd
// that mean nothing here are accepted with a warning; other unknown flags are errors with a hint.
//
// With --join, one command makes a member of a running cluster: the joiner adds it to the cluster,
// starts it, and has it promoted. [DevCommand] runs a whole cluster in one process, to try things.
// [InitCommand] founds a cluster without running it.
//
// The package has no logic of members. Only [Command] uses the process's environment; everything
// else gets it as an argument.
package serve
