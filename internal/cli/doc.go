// Package cli is the command line of leasehold: every command except serve.
//
// Commands that exist in etcdctl 3.7 have the same flags, standard output and exit codes here, so
// that etcdctl users and scripts can use leasehold with either server. Where etcdctl crashes, hangs
// or prints in random order, leasehold does not, and a comment mentions the difference.
//
// The packages below implement the commands, grouped by subject: keys, lease, coordination (lock,
// elect, run, group, queue, pool), access, cluster, recovery, top and planning. Package app
// contains what they share. Package supervise stops the programs that commands run. Each command is
// described by an [app.Command]. A command never exits the process and never touches os.Stdout.
// Instead, it returns an error that can carry an exit code, and shows an [app.Answer] in the format
// selected by --write-out.
package cli
