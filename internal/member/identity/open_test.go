package identity

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// TestAhead checks that reading ahead returns every chunk, even though all chunks share the same
// memory, and keeps returning the final error. A caller that stops early leaves no goroutine
// behind.
func TestAhead(t *testing.T) {
	const chunks = 100
	for _, failing := range []error{io.EOF, errors.New("disk")} {
		for _, taken := range []int{0, 1, 2, chunks, chunks + 3} {
			n, room := 0, make([]byte, 0, 8)
			next, stop := ahead(func() ([]byte, error) {
				if n == chunks {
					return nil, failing
				}
				n++
				return fmt.Append(room, n), nil
			})
			for i := range taken {
				chunk, err := next()
				switch {
				case i >= chunks && err != failing:
					t.Errorf("after the last chunk: %q, %v", chunk, err)
				case i < chunks && (err != nil || string(chunk) != fmt.Sprint(i+1)):
					t.Errorf("chunk %d is %q, %v", i+1, chunk, err)
				}
			}
			stop()
			if n > taken+2 {
				t.Errorf("%d chunks were read when %d were taken", n, taken)
			}
		}
	}
}
