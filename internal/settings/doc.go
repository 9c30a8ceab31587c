// Package settings reads YAML files of settings strictly: an unknown name, a repeated name and a
// value of the wrong type are errors. The error contains the line and, for an unknown name, the
// name that was probably intended.
//
// Errors begin with the line between colons, if known, so that the caller can put the name of the
// file before them: ":7: unknown setting ...".
package settings
