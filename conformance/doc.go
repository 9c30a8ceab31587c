// Command conformance runs the same suite against clients in several languages. A case in
// cases/*.yaml consists of steps: requests to clients, faults, and expected results. A driver is a
// small program that wraps the client of one language. It reads requests and writes answers as
// lines of JSON. The command runs members and relays of the real binary on loopback. Between each
// client and each member, it runs a proxy that can delay and cut connections.
//
//	go run ./conformance                          all cases, with the Go client
//	go run ./conformance -driver python=python3   the Python client, too
//	go run ./conformance -fast -run locks/        the fast cases about locks
//	go run ./conformance -mixed 20m               all clients contend for locks, under faults
//
// README.md describes the format of cases and the protocol of drivers. TestCases checks the files.
package main
