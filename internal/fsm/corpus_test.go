package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
	"leasehold.dev/test/corpus"
)

// filler sets fields to distinct nonzero values.
type filler struct {
	n     int
	depth int // nesting depth of transactions
}

// fill sets all fields that p points to. For an operation, it sets only Put.
func (f *filler) fill(p any) {
	switch p := p.(type) {
	case *Op:
		p.Put = new(Put)
		f.fill(p.Put)
		return
	case *Command:
		put := new(Put)
		f.fill(put)
		*p = put
		return
	case *Txn:
		f.txn(p)
		return
	case *Target:
		*p = TargetVersion + 1
		return
	case *Relation:
		*p = Less
		return
	case *mvcc.SortBy:
		*p = mvcc.ByMod
		return
	case *AlarmKind:
		*p = Corrupt
		return
	case *access.HolderKind:
		*p = access.OfUser
		return
	case *access.LimitChange:
		*p = access.LimitChange{What: access.Rate, Most: 1 << 40}
		return
	case *access.Kind:
		*p = access.ReadWrite
		return
	case **access.Bound: // a By with Bound set is another type of command
		return
	case *lease.Due:
		f.each(reflect.ValueOf(p).Elem())
		p.Late = 0 // not replicated
		return
	case *keyrange.Range:
		*p = keyrange.Range{Key: f.text(), End: f.text()}
		return
	}
	f.value(reflect.ValueOf(p).Elem())
}

func (f *filler) text() string {
	f.n++
	return fmt.Sprint("t", f.n)
}

// txn adds conditions with every target and relation, and operations of every type.
func (f *filler) txn(c *Txn) {
	if f.depth++; f.depth > 2 {
		return
	}
	for target := range Target(255) {
		if target.known() {
			x := Compare{Key: f.text(), End: f.text(), Target: target}
			x.Relation = Relation(target) % (NotEqual + 1)
			if target.bytes() {
				x.Value = []byte(f.text())
			} else {
				x.Number = -7
			}
			c.Compare = append(c.Compare, x)
		}
	}
	c.Then = f.ops()
	c.Else = []Op{{Draw: true}}
	f.depth--
}

// ops returns operations of every type with all fields set.
func (f *filler) ops() (out []Op) {
	for i := range reflect.TypeFor[Op]().NumField() {
		var op Op
		switch v := reflect.ValueOf(&op).Elem().Field(i); v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		default:
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Interface())
		}
		out = append(out, op)
	}
	return out
}

func (f *filler) each(v reflect.Value) {
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() { // such fields exist only in the next version
			continue
		}
		f.fill(v.Field(i).Addr().Interface())
	}
}

func (f *filler) value(v reflect.Value) {
	f.n++
	switch v.Kind() {
	case reflect.Struct:
		f.each(v)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int: // a value that fits into 32 bits
		v.SetInt(int64(f.n) << 16)
	case reflect.Int64:
		v.SetInt(int64(f.n) << 33)
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 256))
	case reflect.Uint64:
		v.SetUint(math.MaxUint64 - uint64(f.n))
	case reflect.String:
		v.SetString(f.text())
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i).Addr().Interface())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i).Addr().Interface())
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{f.text(): f.text(), "": ""}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Interface())
	default:
		panic(fmt.Sprintf("no value for a %s", v.Type()))
	}
}

// bare returns a command of every type with only the required fields set.
func bare() []Command {
	return []Command{
		&Put{}, &DeleteRange{}, &Txn{}, &Once{Command: &Put{}}, &OpenSession{}, &Grant{},
		&Revoke{}, &ChangeTTL{}, &HandOver{}, &Resume{}, &Expire{}, &Checkpoint{},
		&DropOrphans{}, &Compact{}, &SetAlarm{Alarm: Alarm{Kind: NoSpace}}, &SetMember{},
		&AddMember{}, &RemoveMember{}, &PromoteMember{}, &SetVersion{Version: 1},
		&By{Command: &Put{}}, &AuthEnable{}, &AuthDisable{}, &UserAdd{}, &UserDelete{},
		&UserPassword{}, &UserGrantRole{}, &UserRevokeRole{}, &RoleAdd{}, &RoleDelete{},
		&RoleGrant{}, &RoleRevoke{},
		&By{Caller: access.Caller{Bound: &access.Bound{}}, Command: &Put{}}, &SetLimits{},
		&HashState{}, &StateHash{},
	}
}

// thing is a value in a corpus, with its encoding and the function that decodes it.
type thing struct {
	name    string
	value   any
	bytes   []byte
	read    func([]byte) (any, error)
	version int // number of version bytes at the start of the encoding
}

func command(name string, c Command) thing {
	return thing{name, c, AppendCommand(nil, c), func(b []byte) (any, error) {
		d := &decoder{Decoder: logFormat.Decoder(1, b)}
		c := d.command()
		return c, d.End()
	}, 0}
}

func result(name string, r Result) thing {
	return thing{name, r, appendResult(nil, &r), func(b []byte) (any, error) {
		d := &decoder{Decoder: snapshotFormat.Decoder(1, b)}
		r := d.result()
		return r, d.End()
	}, 0}
}

func entry(name string, groups ...Group) thing {
	b := AppendEntry(nil, 1)
	for _, g := range groups {
		if (g.Origin != Origin{}) {
			b = AppendGroup(b, g.Origin, len(g.Commands))
		}
		for _, c := range g.Commands {
			b = AppendCommand(b, c)
		}
	}
	return thing{name, groups, b, func(b []byte) (any, error) {
		groups, err := DecodeEntry(b)
		return groups, err
	}, 1}
}

// commandThings returns every command with all fields set and with only the required ones, and
// every operation.
func commandThings() (out []thing) {
	for _, c := range bare() {
		name := strings.TrimPrefix(fmt.Sprintf("%T", c), "*fsm.")
		full := reflect.New(reflect.TypeOf(c).Elem()).Interface().(Command)
		(&filler{}).fill(full)
		if c.kind() == kindByRoles {
			name = "ByRoles"
			full.(*By).Caller.Bound = &access.Bound{Roles: []string{"r", "s"}}
		}
		out = append(out, command(name, full), command("bare "+name, c))
	}
	for i, op := range (&filler{depth: 2}).ops() {
		name := "operation " + reflect.TypeFor[Op]().Field(i).Name
		out = append(out, command(name, &Txn{Then: []Op{op}}))
	}
	return out
}

func entryThings() []thing {
	put, revoke := &Put{Key: "k"}, &Revoke{ID: 1}
	from := Origin{Member: math.MaxUint64, Seq: 1 << 40}
	commands := forwarded([]Command{put, revoke})
	return []thing{
		entry("own commands", Group{Commands: []Command{put, revoke}}),
		entry("one command of another", Group{from, []Command{put}}),
		entry("commands of others", Group{from, []Command{put, revoke}},
			Group{Origin{1, 2}, []Command{revoke}}),
		entry("own commands around those of another", Group{Commands: []Command{put}},
			Group{from, []Command{revoke, put}}, Group{Commands: []Command{revoke}}),
		{"commands on their way", []Command{put, revoke}, commands, func(b []byte) (any, error) {
			c, err := DecodeCommands(b)
			return c, err
		}, 1},
	}
}

// resultThings returns results with every type of value and with every error.
func resultThings() (out []thing) {
	f := &filler{}
	kv := func() *mvcc.KeyValue {
		kv := new(mvcc.KeyValue)
		f.fill(kv)
		return kv
	}
	kvs := []*mvcc.KeyValue{kv(), {Key: "k"}}
	info := new(lease.Info)
	f.fill(info)
	values := []any{
		&PutResult{}, &PutResult{Prev: kv()}, &DeleteResult{}, &DeleteResult{2, kvs},
		&mvcc.RangeResult{}, &mvcc.RangeResult{KVs: kvs, Count: 7, More: true, Revision: 8},
		&lease.Info{}, info, &Existing{*info}, &RevokeResult{}, &RevokeResult{Deleted: 3},
		lease.Token(math.MaxUint64), &TxnResult{},
	}
	values = append(values, &TxnResult{Succeeded: true, Responses: values})
	for i, v := range values {
		out = append(out, result(fmt.Sprintf("%d %T", i, v), Result{Revision: 9, Value: v}))
	}
	errs := []error{
		&lease.NameError{Name: "n", Holder: *info}, &lease.KeyLimitError{ID: 1, Limit: 2},
		&lease.TTLError{Got: 1, Min: 2, Max: 3}, &CacheTTLError{Got: 1, Max: 2},
		&UnnamedError{Name: "n", ID: 2},
	}
	for _, err := range append(errs, refusals[:]...) {
		out = append(out, result("refused: "+err.Error(), Result{Revision: 9, Err: err}))
	}
	return out
}

// corpora returns the contents of the corpus files of version 1.
func corpora() map[string][]thing {
	return map[string][]thing{
		"commands": commandThings(), "entries": entryThings(), "results": resultThings(),
	}
}

func corpusFile(name string) string {
	return fmt.Sprintf("testdata/v1/%s.txt", name)
}

// TestCorpus checks that this release encodes and decodes the records in the corpus files as
// earlier releases did. These files never change.
func TestCorpus(t *testing.T) {
	if n := len(bare()); n != int(kindLast) {
		t.Fatalf("%d commands of %d", n, kindLast)
	}
	for file, things := range corpora() {
		var records []corpus.Record
		for _, x := range things {
			records = append(records, corpus.Record{Name: x.name, Bytes: x.bytes})
			if got, err := x.read(x.bytes); err != nil || !reflect.DeepEqual(got, x.value) {
				t.Errorf("%s: %x is read as\n%+v, %v\nand not as\n%+v", x.name, x.bytes, got, err, x.value)
			}
		}
		corpus.Check(t, corpusFile(file), records)
	}
	b := bytes.Join(chunks(t, everything(t)), nil)
	corpus.Check(t, corpusFile("snapshot"), []corpus.Record{{Name: "snapshot", Bytes: b}})
}

// TestNoBitIsIgnored checks that flipping any bit of a record makes it invalid or changes its
// meaning. Bits without a meaning are reserved for newer releases, and must stay reserved in
// records of their version. The corpus files record how many reserved bits each byte has.
func TestNoBitIsIgnored(t *testing.T) {
	for file, things := range corpora() {
		var unknown []corpus.Record
		for _, x := range things {
			newer := make([]byte, len(x.bytes))
			for b, at := range corpus.Flipped(x.bytes) {
				got, err := x.read(b)
				switch {
				case errors.Is(err, encoding.ErrNewer):
					newer[at[1]]++
				case err != nil && !errors.Is(err, ErrCorrupt):
					t.Errorf("%s: bit %d of byte %d: %v", x.name, at[0], at[1], err)
				case err == nil && reflect.DeepEqual(got, x.value):
					t.Errorf("%s: bit %d of byte %d is ignored", x.name, at[0], at[1])
				}
			}
			if bytes.Count(newer, []byte{0}) == len(newer) {
				t.Errorf("%s: no bit is of a newer release", x.name)
			}
			unknown = append(unknown, corpus.Record{Name: x.name, Bytes: newer[x.version:]})
		}
		corpus.Check(t, corpusFile(file+"_unknown"), unknown)
	}
	whole := bytes.Join(chunks(t, everything(t)), nil)
	newer := make([]byte, len(whole))
	for b, at := range corpus.Flipped(whole) {
		m, err := restoreChunks(Config{}, b)
		if err == nil && bytes.Equal(bytes.Join(chunks(t, m), nil), whole) {
			t.Errorf("snapshot: bit %d of byte %d is ignored", at[0], at[1])
		}
		if errors.Is(err, encoding.ErrNewer) {
			newer[at[1]]++
		}
	}
	corpus.Check(t, corpusFile("snapshot_unknown"), []corpus.Record{
		{Name: "snapshot", Bytes: newer[2:]}, // skip the header's tag and the version
	})
}

// everything returns a state whose snapshot contains every type of record, with all fields set.
func everything(t testing.TB) *Machine {
	t.Helper()
	m := New(Config{})
	f := &filler{}
	member := Member{}
	f.fill(&member)
	member.Versions = version.Range{Oldest: 1, Newest: 2}
	m.meta.restore = math.MaxUint64 - 7
	m.AddMember(member)
	m.AddMember(Member{ID: 2, PeerURLs: []string{"p"}})
	full := new(Grant)
	f.fill(full)
	full.Terms.TTL, full.Terms.LockDelay, full.Terms.Bound = 5000, 700, false
	held := lease.Terms{ID: 3, TTL: 6000, Owner: "o"}
	apply(t, m, &AddMember{Member{ID: 4, PeerURLs: []string{"q"}, Learner: true}})
	apply(t, m, &RemoveMember{ID: 4})
	for _, c := range []Command{
		&UserAdd{Name: "root", Hash: []byte("hash")}, &UserGrantRole{"root", "root"},
		&UserAdd{Name: "u", NoPassword: true}, &RoleAdd{"r"}, &UserGrantRole{"u", "r"},
		&RoleGrant{"r", access.Permission{Kind: access.ReadWrite, Key: "a", End: "b"}},
		&RoleGrant{"r", access.Permission{Key: "c"}},
		&RoleGrant{"r", access.Permission{Kind: access.Hold, Key: "a", End: "b"}},
		&SetLimits{access.Holder{}, []access.LimitChange{{What: access.Leases, Most: 9}}},
		&SetLimits{access.Holder{Kind: access.OfRole, Name: "r"}, []access.LimitChange{
			{What: access.Bytes, Most: 9}, {What: access.Rate, Most: access.NoLimit},
		}},
	} {
		apply(t, m, c)
	}
	s, number := open(t, m, math.MaxUint64), uint64(0)
	open(t, m, 1)
	for _, c := range []Command{
		&Put{Key: "a", Value: []byte("1")}, &Put{Key: "a", PrevKV: true}, full, full,
		&Put{Key: "b", LeaseName: full.Terms.Name, Value: []byte("2")}, &Put{Key: "c", Lease: 99},
		&Grant{Terms: held, Holds: full.Holds}, &Grant{Terms: lease.Terms{ID: 5, TTL: -1}},
		&HandOver{ID: 3, Token: 2, Owner: "p"}, &Revoke{Name: "none"},
		&Grant{Terms: lease.Terms{ID: 6, TTL: 9, Name: full.Terms.Name}},
		&Grant{Terms: lease.Terms{ID: 7, TTL: 800}, Holds: full.Holds},
		&Txn{Then: []Op{
			{Range: &Range{Key: "a", End: "\x00"}},
			{Draw: true},
			{Put: &Put{Key: "d", Lease: 3}},
			{Delete: &DeleteRange{Key: "d", PrevKV: true}},
			{Touch: &Touch{ID: 3}},
		}},
		&DeleteRange{Key: "a"}, &Put{Key: "e", Lease: 7, Value: []byte("3")},
	} {
		number++
		apply(t, m, &Once{Session: s, Number: number, Settled: 2, Command: c})
	}
	info, _ := m.lessor.Lookup(3)
	mustApply(t, m, &Checkpoint{Term: 1, Leases: []lease.Checkpoint{
		{ID: 3, Token: info.Token, Remaining: 1234, Stamp: info.Stamp},
	}})
	expire(t, m, full.Terms.ID)
	mustApply(t, m, &Grant{Terms: lease.Terms{ID: 8, TTL: 500}})
	mustApply(t, m, &Put{Key: "f", Lease: 8})
	for range 2 {
		mustApply(t, m, &Put{Key: strings.Repeat("k", longKey), Value: []byte("v")})
	}
	expire(t, m, 8)
	mustApply(t, m, &AuthEnable{})
	root := access.Caller{User: "root", Revision: m.meta.access.Revision()}
	mustApply(t, m, &By{root, &OpenSession{Nonce: 2}})
	mustApply(t, m, &By{root, &Grant{Terms: lease.Terms{ID: 9, TTL: 500}}})
	mustApply(t, m, &By{root, &Put{Key: "g", Lease: 9}})
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 2, Kind: NoSpace}})
	mustApply(t, m, &SetVersion{Version: 1, Hold: true})
	mustApply(t, m, &HashState{})
	mustApply(t, m, &StateHash{Member: 2, Index: m.index, Hash: math.MaxUint32})
	delayed, _ := m.lessor.Lookup(full.Terms.ID)
	if len(m.members) != 2 || len(m.removed) != 1 || len(m.alarms) != 1 || !delayed.Delayed ||
		len(m.sessions.byID) != 3 || len(m.sessions.byID[s.ID].answers) != int(number)-1 ||
		m.holds.len() == 0 || len(m.holds.orphans) == 0 {
		t.Fatal("something is missing in the state")
	}
	return m
}
