// Package settings reads files of settings. They are YAML, and are read strictly: a name that is
// not known, a name that comes twice and a value of another type are errors, which tell the line
// and, of a name, the one that was probably meant.
//
// All errors begin with the line between colons, if that is known, so that the name of the file
// stands well before them: ":7: unknown setting ...".
package settings
