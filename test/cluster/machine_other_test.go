//go:build !linux

package cluster

import "time"

// machineTime reads a clock that all processes of the machine share. Nobody is to set it
// meanwhile.
func machineTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
