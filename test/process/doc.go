// Package process runs servers as processes, for black-box tests and for comparisons. It builds the
// binary, finds free ports, starts the process with its output in a file, and detects its end.
//
// It does not depend on what a server does. The caller chooses the arguments and decides when a
// server is ready. Everything can be called concurrently.
package process
