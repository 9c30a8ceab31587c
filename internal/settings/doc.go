// Package settings reads YAML files of settings strictly: an unknown name, a name that comes
// twice and a value of another type are errors. The error tells the line and, for an unknown
// name, the one that was probably meant.
//
// All errors begin with the line between colons, if it is known, so that the caller can put the
// name of the file before them: ":7: unknown setting ...".
package settings
