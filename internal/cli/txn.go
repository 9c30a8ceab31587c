package cli

import (
	"bufio"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) txnCommand() *cobra.Command {
	var interactive bool
	return a.make(command{
		use: "txn", short: "Process all requests in one transaction",
		long: `Read a transaction from standard input, and apply it as one atomic step.

It has three parts, each ended by an empty line: conditions, requests to apply
if all of them hold, and requests to apply otherwise. For example

    mod("key1") > "0"

    put key1 "overwrote-key1"

    put key1 "created-key1"
    put key2 "some extra key"

A condition compares one of ver, create, mod, val or lease of a key, by =, !=, <
or >, with a quoted value. A request is get, put or del with the flags of that
command.`,
		example: "txn < moves.txt\ntxn -i",
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVarP(&interactive, "interactive", "i", false, "prompt for each part")
		},
		run: func(*cobra.Command, []string, []string) error { return a.runTxn(interactive) },
	})
}

func (a *app) runTxn(interactive bool) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	defer c.Close()
	prompt := func(text string) {
		if interactive {
			a.say("%s\n", text)
		}
	}
	in := bufio.NewReader(a.Stdin)
	txn := c.Txn(a.context())
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
	return a.show(showTxn(resp))
}

// readPart reads one part of a transaction: a line for each item, until an
// empty one.
func readPart[T any](in *bufio.Reader, parse func(string) (T, error)) ([]T, error) {
	var items []T
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, &exitError{exitInput, err}
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

// parseRequest reads a request, and warns of one that deletes a whole range.
func (a *app) parseRequest(line string) (clientv3.Op, error) {
	op, risky, err := parseRequest(line)
	if risky && err == nil {
		a.warnOfRange([]string{string(op.KeyBytes()), string(op.RangeBytes())})
	}
	return op, err
}
