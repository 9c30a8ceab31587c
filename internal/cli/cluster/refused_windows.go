package cluster

import "golang.org/x/sys/windows"

// connectionRefused is the error of a connection to a port at which no process listens.
const connectionRefused = windows.WSAECONNREFUSED
