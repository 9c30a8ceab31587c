//go:build !linux

package host

// newTimer returns a Go timer, because kernel timers are not used on this system.
func newTimer() (Timer, error) { return newGoTimer(), nil }
