// Package serve implements the command "leasehold serve". It creates a [server.Config] from flags
// and environment variables, and runs one member until a signal ends it. Settings with the same
// meaning as in etcd have the same names.
//
// The command can replace etcd. [Args] makes the binary behave like etcd if it is called "etcd".
// etcd flags that have no meaning here are accepted with a warning. Other unknown flags cause
// errors with a hint.
//
// With --join, a single command adds a member to a running cluster: the joiner adds the member,
// starts it, and has it promoted. [DevCommand] runs a whole cluster in one process, for trying
// things out. [InitCommand] founds a cluster without running it.
//
// The package contains no member logic. Only [Command] uses the process's environment; everything
// else receives it as an argument.
package serve
