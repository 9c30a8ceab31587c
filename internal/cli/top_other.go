//go:build !unix

package cli

import "os"

// notifyResized does nothing here: each frame looks how large the terminal is.
func notifyResized(chan os.Signal) (stop func()) { return func() {} }
