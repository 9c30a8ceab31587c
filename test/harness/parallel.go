package harness

import (
	"flag"
	"runtime"
	"strconv"
)

// Parallel allows four parallel tests per processor unless the -parallel flag is set, because tests
// with servers spend most of their time waiting. TestMain calls it before it runs the tests.
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
