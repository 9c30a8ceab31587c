// Package join joins errors without their stacks.
package join

import "errors"

// Join makes one error of those that are not nil. It is nil if all are.
func Join(errs ...error) error { return errors.Join(errs...) }
