//go:build !unix

package rewind

// giveTo does nothing here: files have no owner who alone may open them.
func giveTo(string, string) error { return nil }
