package fsm

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// These are more than what has a bounded length takes: a command or an operation but for its
// texts, and what says how long a text is.
const (
	fixedSize = 128
	textSize  = 10
)

// Size returns how many bytes AppendCommand appends for a command, at most, at the cost of
// looking at its lengths. Who gathers commands bounds them by it.
func Size(c Command) int {
	switch c := Inner(c).(type) {
	case *Put:
		return putSize(c)
	case *Txn:
		return fixedSize + txnSize(c)
	case *DeleteRange:
		return fixedSize + len(c.Key) + len(c.End)
	case *Grant:
		return grantSize(c)
	case *Revoke:
		return fixedSize + len(c.Name) + len(c.By)
	case *ChangeTTL:
		return fixedSize + len(c.Name)
	case *HandOver:
		return fixedSize + len(c.Name) + len(c.Owner)
	case *Resume:
		return fixedSize + len(c.Name)
	case *Expire:
		return fixedSize + fixedSize*len(c.Leases)
	case *Checkpoint:
		return fixedSize + fixedSize*len(c.Leases)
	case *DropOrphans:
		return fixedSize + textSize*len(c.Tokens)
	case *SetMember:
		return memberSize(&c.Member)
	case *AddMember:
		return memberSize(&c.Member)
	default:
		return fixedSize
	}
}

func putSize(c *Put) int { return fixedSize + len(c.LeaseName) + len(c.Key) + len(c.Value) }

func txnSize(c *Txn) int {
	n := 3 * textSize
	for i := range c.Compare {
		x := &c.Compare[i]
		n += fixedSize/2 + len(x.Key) + len(x.End) + len(x.Value)
	}
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			n += opSize(&ops[i])
		}
	}
	return n
}

func opSize(op *Op) int {
	switch {
	case op.Put != nil:
		return putSize(op.Put)
	case op.Delete != nil:
		return fixedSize + len(op.Delete.Key) + len(op.Delete.End)
	case op.Range != nil:
		return fixedSize + len(op.Range.Key) + len(op.Range.End)
	case op.Txn != nil:
		return 1 + txnSize(op.Txn)
	case op.Grant != nil:
		return grantSize(op.Grant)
	case op.Revoke != nil:
		return fixedSize + len(op.Revoke.Name) + len(op.Revoke.By)
	case op.Touch != nil:
		return fixedSize + len(op.Touch.Name)
	default:
		return fixedSize
	}
}

func grantSize(c *Grant) int { return fixedSize + termsSize(&c.Terms) + rangesSize(c.Holds) }

func termsSize(t *lease.Terms) int {
	n := 4*textSize + len(t.Secret) + len(t.Name) + len(t.Owner) + len(t.RequestID)
	for k, v := range t.Labels {
		n += 2*textSize + len(k) + len(v)
	}
	return n
}

func rangesSize(list []keyrange.Range) (n int) {
	for _, r := range list {
		n += 2*textSize + len(r.Key) + len(r.End)
	}
	return n
}

func memberSize(m *Member) int {
	n := fixedSize + len(m.Name)
	for _, urls := range [...][]string{m.PeerURLs, m.ClientURLs} {
		for _, u := range urls {
			n += textSize + len(u)
		}
	}
	return n
}
