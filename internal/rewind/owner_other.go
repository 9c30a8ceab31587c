//go:build !unix

package rewind

// chownLike does nothing here: files have no owner who alone may open them.
func chownLike(string, string) error { return nil }
