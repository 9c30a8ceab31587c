// Package subprocess starts programs that must not outlive this process.
package subprocess
