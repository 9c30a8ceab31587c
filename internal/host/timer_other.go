//go:build !linux

package host

// newTimer returns one of Go's timers: what the kernel has is not used here.
func newTimer() (Timer, error) { return newGoTimer(), nil }
