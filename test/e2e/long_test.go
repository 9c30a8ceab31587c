package e2e

import "flag"

var longFlag = flag.Bool("long", false, "run at full size what is small by default")
