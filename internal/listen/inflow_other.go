//go:build !unix

package listen

const canTry = false

func (f *inflow) readSocket() (int, error) { panic("listen: no socket can be tried here") }

func (f *inflow) tryRead(uintptr) bool { panic("listen: no socket can be tried here") }
