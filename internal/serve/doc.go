// Package serve is the command "leasehold serve". It makes a [server.Config] from flags and
// environment variables, which have etcd's names if they have the same meaning, and runs one member
// until a signal ends it.
//
// It can replace etcd. [Args] makes the binary behave like etcd if it is called "etcd". Flags of
// etcd that mean nothing here are accepted with a warning; other unknown flags are errors with a
// hint.
//
// With --join, a single command adds a member to a running cluster: the joiner adds it, starts it,
// and has it promoted. [DevCommand] runs a whole cluster in one process, for trying things out.
// [InitCommand] founds a cluster without running it.
//
// The package contains no logic of members. Only [Command] uses the process's environment;
// everything else gets it as an argument.
package serve
