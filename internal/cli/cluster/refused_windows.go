package cluster

import "golang.org/x/sys/windows"

// connectionRefused is the error of connecting to a port without a listener.
const connectionRefused = windows.WSAECONNREFUSED
