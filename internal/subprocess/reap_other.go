//go:build !linux

package subprocess

import "os/exec"

// Start is cmd.Start.
func Start(cmd *exec.Cmd) error { return cmd.Start() }

// Wait is cmd.Wait.
func Wait(cmd *exec.Cmd) error { return cmd.Wait() }
