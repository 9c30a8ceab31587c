package cluster

import "golang.org/x/sys/windows"

// connectionRefused is the error from connecting to a port that has no listener.
const connectionRefused = windows.WSAECONNREFUSED
