package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// protoJSON is a message in the JSON of the gateway.
func protoJSON(m proto.Message) json.RawMessage {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil { // only strings that are not UTF-8, which did not come over the wire
		return json.RawMessage("null")
	}
	return b
}

func millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// leaseState is what a lease is in besides alive.
func leaseState(l *pb.Lease) string {
	if l.Delayed {
		return "delayed"
	}
	return "alive"
}

var leaseHead = []string{"ID", "Name", "Owner", "TTL", "Remaining", "Keys", "State"}

func leaseRow(l *pb.Lease) []string {
	return []string{
		fmt.Sprintf("%016x", l.Id), readable(l.Name), readable(l.Owner),
		millis(l.TtlMs), millis(l.RemainingMs), fmt.Sprint(l.KeyCount), leaseState(l),
	}
}

func showNativeGrant(r *pb.GrantResponse) answer {
	ttl := millis(r.Lease.TtlMs)
	if r.Lease.TtlMs%1000 == 0 {
		ttl = fmt.Sprintf("%ds", r.Lease.TtlMs/1000) // as etcdctl does
	}
	return showChanged(r, r.Lease, "granted with TTL(%s), token %d\n", ttl, r.Lease.Token)
}

// showChanged tells what a command did to a lease: the text is what follows the lease's ID. If
// the answer has a secret, it tells that too.
func showChanged(r proto.Message, l *pb.Lease, text string, args ...any) answer {
	printed := ""
	if s, ok := r.(interface{ GetSecret() []byte }); ok {
		printed = base64.StdEncoding.EncodeToString(s.GetSecret())
	}
	return answer{json: protoJSON(r), proto: r, simple: func(p *page) {
		p.printf("lease %016x "+text, append([]any{l.Id}, args...)...)
		if printed != "" {
			p.printf("secret %s\n", printed)
		}
	}, fields: func(p *page) {
		p.lease(l)
		if printed != "" {
			p.quoted("Secret", printed)
		}
	}}
}

func showChecked(asked *pb.CheckTokenRequest, r *pb.CheckTokenResponse) answer {
	return answer{json: protoJSON(r), proto: r, simple: func(p *page) {
		switch {
		case r.Valid:
			p.printf("token %d is valid\n", asked.Token)
		case asked.Token > r.Current && r.Current != 0:
			p.printf("token %d is not valid: the lease has token %d\n", asked.Token, r.Current)
		case r.Current != 0:
			p.printf("token %d is old: the lease has token %d\n", asked.Token, r.Current)
		default:
			p.printf("token %d is not valid: there is no such lease\n", asked.Token)
		}
	}, fields: func(p *page) {
		p.field("Valid", r.Valid)
		p.field("Current", r.Current)
	}}
}

func showLeaseList(r *pb.ListResponse) answer {
	return answer{json: protoJSON(r), proto: r, simple: func(p *page) {
		w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, strings.ToUpper(strings.Join(leaseHead, "\t")))
		for _, l := range r.Leases {
			row := leaseRow(l)
			for i, cell := range row {
				if cell == "" {
					row[i] = "-"
				}
			}
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		_ = w.Flush() // into memory
	}, table: func() ([]string, [][]string) {
		var rows [][]string
		for _, l := range r.Leases {
			rows = append(rows, leaseRow(l))
		}
		return leaseHead, rows
	}, fields: func(p *page) {
		for _, l := range r.Leases {
			p.lease(l)
		}
	}}
}

func showDescribed(r *pb.DescribeResponse) answer {
	return answer{json: protoJSON(r), proto: r, simple: func(p *page) {
		p.describe(r.Lease)
	}, table: func() ([]string, [][]string) {
		return leaseHead, [][]string{leaseRow(r.Lease)}
	}, fields: func(p *page) { p.lease(r.Lease) }}
}

func showHandedOver(r *pb.HandOverResponse) answer {
	return showChanged(r, r.Lease, "handed over to %q, token %d\n", r.Lease.Owner, r.Lease.Token)
}

// describe writes a lease for people: what it has not is left out.
func (p *page) describe(l *pb.Lease) {
	line := func(name, value string) {
		if value != "" {
			p.printf("%-11s%s\n", name, readable(value))
		}
	}
	line("lease", fmt.Sprintf("%016x", l.Id))
	line("name", l.Name)
	line("owner", l.Owner)
	line("principal", l.Principal)
	for _, k := range slices.Sorted(maps.Keys(l.Labels)) {
		line("label", k+"="+l.Labels[k])
	}
	line("token", fmt.Sprint(l.Token))
	line("state", leaseState(l))
	line("ttl", millis(l.TtlMs))
	line("remaining", millis(l.RemainingMs))
	if l.LockDelayMs > 0 {
		line("lock delay", millis(l.LockDelayMs))
	}
	if l.AtExpiry == pb.AtExpiry_AT_EXPIRY_KEEP {
		line("at expiry", "keys stay")
	}
	if l.Bound {
		line("bound", "to its key")
	}
	for _, h := range l.Holds {
		p.printf("%-11s%s\n", "holds", heldText(h))
	}
	for _, k := range l.Keys {
		p.printf("%-11s%q\n", "key", k)
	}
}

// heldText is a range of keys for people.
func heldText(r *pb.KeyRange) string {
	key, end := string(r.Key), string(r.RangeEnd)
	switch {
	case end == "":
		return fmt.Sprintf("%q", key)
	case end == "\x00":
		return fmt.Sprintf("%q and all after it", key)
	case end == store.Prefix(key).End:
		return fmt.Sprintf("all that begins with %q", key)
	default:
		return fmt.Sprintf("%q up to %q", key, end)
	}
}

// lease writes a lease in the fields format.
func (p *page) lease(l *pb.Lease) {
	p.leaseID("ID", l.Id)
	p.field("Token", l.Token)
	p.field("TTL", l.TtlMs)
	p.field("Remaining", l.RemainingMs)
	p.quoted("Name", l.Name)
	p.quoted("Owner", l.Owner)
	for _, k := range slices.Sorted(maps.Keys(l.Labels)) {
		p.quoted("Label", k+"="+l.Labels[k])
	}
	if l.Principal != "" {
		p.quoted("Principal", l.Principal)
	}
	p.field("LockDelay", l.LockDelayMs)
	p.field("AtExpiry", l.AtExpiry)
	p.field("Delayed", l.Delayed)
	p.field("KeyCount", l.KeyCount)
	if l.Bound {
		p.field("Bound", l.Bound)
	}
	for _, h := range l.Holds {
		p.printf("\"Holds\" : %q %q\n", h.Key, h.RangeEnd)
	}
	for _, k := range l.Keys {
		p.quoted("Key", string(k))
	}
}
