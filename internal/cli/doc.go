// Package cli is the command line of leasehold: every command except serve.
//
// The commands, their flags, standard output and exit codes are those of etcdctl 3.7 for the
// commands that it has, so that users and scripts of etcdctl can use leasehold with either server.
// Where etcdctl crashes, hangs or prints in random order, leasehold does not, and a comment
// mentions it.
//
// The packages below have the commands by subject: keys, lease, coordination (lock, elect, run,
// group, queue, pool), access, cluster, recovery, top and planning. Package app contains what they
// share, and supervise stops the programs that commands run. A command is described by an
// [app.Command]. It never exits the process and never touches os.Stdout: it returns an error that
// may carry an exit code, and shows an [app.Answer] in the format that --write-out chose.
package cli
