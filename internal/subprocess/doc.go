// Package subprocess is for programs that this process starts, and that are not to outlive it.
package subprocess
