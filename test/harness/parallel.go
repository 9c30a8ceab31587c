package harness

import (
	"flag"
	"runtime"
	"strconv"
)

// Parallel allows four parallel tests per processor, unless the flag -parallel is set: tests with
// servers wait most of the time. TestMain calls it before it runs the tests.
func Parallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
}
