// Package settings reads YAML files of settings strictly. An unknown name, a repeated name, or a
// value of the wrong type is an error. The error contains the line number and, for an unknown name,
// the name that was probably intended.
//
// If the line is known, an error begins with the line number between colons, so that the caller can
// prepend the file name: ":7: unknown setting ...".
package settings
