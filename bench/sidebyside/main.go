package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"leasehold.dev/test/process"
)

type options struct {
	etcd, leasehold string
	match           string
	tries           int
	keep            string
	verbose         bool
}

func parse() *options {
	o := &options{}
	flag.StringVar(&o.etcd, "etcd", "", "etcd `binary`")
	flag.StringVar(&o.leasehold, "leasehold", "",
		"leasehold `binary` (default: built now; \"none\": left out)")
	flag.StringVar(&o.match, "run", "", "only faults whose id or title matches this `regexp`")
	flag.IntVar(&o.tries, "tries", 3, "`times` to try what depends on luck")
	flag.StringVar(&o.keep, "keep", "", "`directory` for the servers' data and logs, kept")
	flag.BoolVar(&o.verbose, "v", false, "say what is being done")
	flag.Parse()
	return o
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	clean, err := run(ctx, parse(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sidebyside:", err)
	}
	if err != nil || !clean {
		stop()
		os.Exit(1)
	}
}

// run tries the faults and prints the table. clean reports whether every fault could be tried and
// leasehold showed none of them.
func run(ctx context.Context, o *options, out io.Writer) (clean bool, err error) {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return false, err
	}
	dir := o.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "leasehold-sidebyside-"); err != nil {
			return false, err
		}
		defer os.RemoveAll(dir)
	}
	kinds, err := o.kinds(ctx, dir)
	if err != nil {
		return false, err
	}
	clean = true
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "fault\tserver\tverdict\tseen")
	for _, f := range faults {
		if !match.MatchString(f.id + " " + f.title) {
			continue
		}
		for _, k := range kinds {
			r, err := f.try(ctx, k, trial{dir: dir, tries: o.tries, say: o.say})
			if err != nil {
				r = result{failed: true, seen: err.Error()}
			}
			if r.failed || k.ours && r.shown && !f.byDesign {
				clean = false
			}
			fmt.Fprintf(t, "%s %s\t%s\t%s\t%s\n", f.id, f.title, k.name, r.verdict(), r.seen)
			o.say("%s on %s: %s: %s", f.id, k.name, r.verdict(), r.seen)
		}
	}
	return clean, t.Flush()
}

// kinds returns the servers to compare: those for which there is a binary.
func (o *options) kinds(ctx context.Context, dir string) ([]kind, error) {
	var kinds []kind
	if o.etcd != "" {
		kinds = append(kinds, kind{name: "etcd", path: o.etcd})
	}
	if o.leasehold == "none" {
		return kinds, nil
	}
	if o.leasehold == "" {
		path, err := process.Build(ctx, dir)
		if err != nil {
			return nil, err
		}
		o.leasehold = path
	}
	ours := kind{name: "leasehold", path: o.leasehold, args: []string{"serve"}, ours: true}
	return append(kinds, ours), nil
}

func (o *options) say(format string, args ...any) {
	if o.verbose {
		text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("15:04:05.000"), text)
	}
}
