// Package cli is the command line of leasehold: every command but serve.
//
// The commands, their flags, output and exit codes are those of etcdctl 3.7, so that users and
// scripts of etcdctl can use leasehold with either server. Where etcdctl crashes, hangs or prints
// in random order, leasehold does not, and the code says so.
//
// One file holds one family of commands; show_*.go hold what an answer looks like. A command
// never exits the process and never touches os.Stdout: it returns an error that may carry an exit
// code, and shows an answer through the printer that --write-out chose. Main prints the answer
// and exits with the code.
package cli
