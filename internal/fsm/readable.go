package fsm

import (
	"errors"

	"leasehold.dev/internal/mvcc"
)

// ErrUnreadable means that a command contains a value that no member could decode. Such a command
// must not be proposed, because any member that read the entry would have to stop.
var ErrUnreadable = errors.New("fsm: the log cannot encode a value of the command")

// Readable reports whether members can decode a command from the log. The code that builds commands
// from requests makes the same checks and returns better errors. This is the last line of defense.
func Readable(c Command) bool {
	switch c := c.(type) {
	case *By:
		return c.Command.kind().forClients() && Readable(c.Command)
	case *RoleGrant:
		return c.Permission.Kind.Known()
	case *Once:
		return c.Command.kind().repeatable() && Readable(c.Command)
	case *Txn:
		return c.readable(maxTxnDepth)
	case *SetAlarm:
		return c.Alarm.Kind.known() && !c.Alarm.Kind.found()
	default:
		return true
	}
}

// readable is like Readable, for a transaction whose nested transactions may go up to levels deep.
func (c *Txn) readable(levels int) bool {
	for i := range c.Compare {
		if x := &c.Compare[i]; !x.Target.known() || x.Relation > NotEqual {
			return false
		}
	}
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			switch op := &ops[i]; {
			case op.Range != nil && (op.Range.Options.SortBy < mvcc.None ||
				op.Range.Options.SortBy > mvcc.ByValue):
				return false
			case op.Txn != nil && (levels == 0 || !op.Txn.readable(levels-1)):
				return false
			case *op == (Op{}):
				return false
			}
		}
	}
	return true
}

// TooDeep reports whether c nests transactions more deeply than the log allows. Such a command must
// not be proposed, because no member could decode the entry.
func (c *Txn) TooDeep() bool { return c.deeper(maxTxnDepth) }

func (c *Txn) deeper(levels int) bool {
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			if t := ops[i].Txn; t != nil && (levels == 0 || t.deeper(levels-1)) {
				return true
			}
		}
	}
	return false
}
