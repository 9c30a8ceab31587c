package keys

import (
	"bufio"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

func (a commands) txnCommand() *cobra.Command {
	var interactive bool
	return a.Make(app.Command{
		Use: "txn", Short: "Process all requests in one transaction",
		Long: `Read a transaction from standard input, and apply it as one atomic step.

It has three parts, each terminated by an empty line: conditions, requests to apply
if all of them hold, and requests to apply otherwise. For example

    mod("key1") > "0"

    put key1 "overwrote-key1"

    put key1 "created-key1"
    put key2 "some extra key"

A condition compares one of ver, create, mod, val or lease of a key, using =, !=, <
or >, with a quoted value. A request is get, put or del with the flags of that
command.`,
		Example: "txn < moves.txt\ntxn -i",
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVarP(&interactive, "interactive", "i", false, "prompt for each part")
		},
		Run: func(*cobra.Command, []string, []string) error { return a.runTxn(interactive) },
	})
}

func (a commands) runTxn(interactive bool) error {
	c, err := a.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	prompt := func(text string) {
		if interactive {
			a.Say("%s\n", text)
		}
	}
	in := bufio.NewReader(a.Stdin)
	txn := c.Txn(a.Background())
	prompt("compares:")
	conditions, err := readPart(in, parseCompare)
	if err != nil {
		return err
	}
	prompt("success requests (get, put, del):")
	then, err := readPart(in, a.parseRequest)
	if err != nil {
		return err
	}
	prompt("failure requests (get, put, del):")
	otherwise, err := readPart(in, a.parseRequest)
	if err != nil {
		return err
	}
	resp, err := txn.If(conditions...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return err
	}
	return a.Show(showTxn(resp))
}

// readPart reads one part of a transaction: one item per line, until an empty line.
func readPart[T any](in *bufio.Reader, parse func(string) (T, error)) ([]T, error) {
	var items []T
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, app.WithCode(app.ExitInput, err)
		}
		line = strings.TrimSpace(line)
		if line == "" {
			return items, nil
		}
		item, err := parse(line)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
}

// parseRequest parses a request, and warns if it deletes a whole range.
func (a commands) parseRequest(line string) (clientv3.Op, error) {
	op, risky, err := parseRequest(line)
	if risky && err == nil {
		a.warnOfRange([]string{string(op.KeyBytes()), string(op.RangeBytes())})
	}
	return op, err
}
