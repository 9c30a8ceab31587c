// Package process runs servers as processes, for black-box tests and for comparisons: it builds the
// binary, finds free ports, starts the process with its output in a file, and notices its end.
//
// It does not depend on what a server does: the caller chooses the arguments and decides when a
// server is ready. Everything may be called concurrently.
package process
