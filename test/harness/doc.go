// Package harness is what tests of the built binary share: which binary it is, and
// how long anything may take.
//
//	var server harness.Binary
//
//	func TestMain(m *testing.M) { os.Exit(server.Main(m)) }
package harness
