// Package harness is shared by the tests of the built binary. It determines which binary they test
// and how long their operations may take.
//
//	var server harness.Binary
//
//	func TestMain(m *testing.M) { os.Exit(server.Main(m)) }
package harness
