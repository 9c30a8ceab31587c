// Package cli is the command line of leasehold: every command but serve.
//
// The commands, their flags, the bytes they print and the codes they exit with
// are those of etcdctl 3.7, so that fingers and scripts that know etcdctl can
// use leasehold against either server. Where etcdctl crashes, hangs or prints
// in random order, leasehold does not, and the code says so.
//
// One file holds one family of commands; show_*.go hold what an answer looks
// like. A command never exits the process and never touches os.Stdout: it
// returns an error that may carry an exit code, and shows an answer through
// the printer that --write-out chose. Main turns both into what the caller of
// the process sees.
package cli
