// Package settings reads YAML files of settings strictly: an unknown name, a repeated name and a
// value of the wrong type are errors. The error has the line and, for an unknown name, the one that
// was probably meant.
//
// Errors begin with the line between colons, if known, so that the caller can put the name of the
// file before them: ":7: unknown setting ...".
package settings
