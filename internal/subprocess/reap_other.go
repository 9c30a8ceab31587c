//go:build !linux

package subprocess

import "os/exec"

// Start calls cmd.Start.
func Start(cmd *exec.Cmd) error { return cmd.Start() }

// Wait calls cmd.Wait.
func Wait(cmd *exec.Cmd) error { return cmd.Wait() }
