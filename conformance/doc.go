// Command conformance holds clients in several languages to one suite. A case in cases/*.yaml has
// steps: requests to clients, faults, and what is expected. A driver is a small program that wraps
// the client of one language; it reads requests and writes answers, a line of JSON each. The
// command runs members and relays of the real binary on loopback, and puts a proxy of its own
// between each client and each member, which delays and cuts connections.
//
//	go run ./conformance                          all cases, with the Go client
//	go run ./conformance -driver python=python3   the Python client, too
//	go run ./conformance -fast -run locks/        the fast cases about locks
//	go run ./conformance -mixed 20m               all clients contend for locks, under faults
//
// README.md has the format of cases and the protocol of drivers. TestCases checks the files.
package main
