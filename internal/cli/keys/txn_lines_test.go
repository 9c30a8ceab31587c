package keys

import (
	"strconv"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

// TestParseCompare checks that each target, operator and value is stored in the right field of the
// request.
func TestParseCompare(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{`ver("k") > "1"`, `VERSION k GREATER 1`},
		{`version("k") = "1"`, `VERSION k EQUAL 1`},
		{`c("k") < "2"`, `CREATE k LESS 2`},
		{`create("k") != "2"`, `CREATE k NOT_EQUAL 2`},
		{`m("k") = "-3"`, `MOD k EQUAL -3`},
		{`mod("a b") = "3"`, `MOD a b EQUAL 3`},
		{`val("k") = "x y"`, `VALUE k EQUAL x y`},
		{`value("\x00k") = "\n"`, "VALUE \x00k EQUAL \n"},
		{`lease("k") = "2e"`, `LEASE k EQUAL 46`},
	} {
		cmp, err := parseCompare(tc.line)
		if err != nil {
			t.Errorf("parseCompare(%q): %v", tc.line, err)
		} else if got := describe(cmp.GetCompare()); got != tc.want {
			t.Errorf("parseCompare(%q) = %q, want %q", tc.line, got, tc.want)
		}
	}
}

func describe(c *pb.Compare) string {
	value := string(c.GetValue())
	switch c.GetTarget() {
	case pb.Compare_VERSION:
		value = strconv.FormatInt(c.GetVersion(), 10)
	case pb.Compare_CREATE:
		value = strconv.FormatInt(c.GetCreateRevision(), 10)
	case pb.Compare_MOD:
		value = strconv.FormatInt(c.GetModRevision(), 10)
	case pb.Compare_LEASE:
		value = strconv.FormatInt(c.GetLease(), 10)
	}
	return strings.Join([]string{
		c.GetTarget().String(), string(c.GetKey()), c.GetResult().String(), value,
	}, " ")
}

func TestParseCompareErrors(t *testing.T) {
	for _, line := range []string{
		``, `mod`, `mod(`, `mod("k")`, `mod("k") >`, `mod("k") > 1`, `mod("k" > "1"`,
		`mod("k") ~ "1"`, `mod("k") > "x"`, `size("k") > "1"`, `lease("k") = "-"`,
		`val("k) = "x"`,
	} {
		if _, err := parseCompare(line); app.ExitCode(err) != app.ExitInput {
			t.Errorf("parseCompare(%q): %v, code %d", line, err, app.ExitCode(err))
		}
	}
}

// FuzzParseCompare checks that every condition that parses can be sent, and that no condition makes
// the parser panic.
func FuzzParseCompare(f *testing.F) {
	f.Add(`mod("key") > "0"`)
	f.Add(`lease("key") != "7fffffffffffffff"`)
	f.Add(`val("\xff") = "%q"`)
	f.Fuzz(func(t *testing.T, line string) {
		cmp, err := parseCompare(line)
		if (err == nil) != (cmp.GetCompare().GetTargetUnion() != nil) && err == nil {
			t.Errorf("%q: no value and no error", line)
		}
	})
}

// TestParseRequest checks that a request line accepts the flags of the corresponding command.
func TestParseRequest(t *testing.T) {
	for _, tc := range []struct {
		line  string
		check func(clientv3.Op) bool
	}{
		{`put k v`, func(o clientv3.Op) bool { return o.IsPut() && string(o.ValueBytes()) == "v" }},
		{`put k "" --lease=2e`, func(o clientv3.Op) bool { return o.IsPut() }},
		{`put k --ignore-value`, func(o clientv3.Op) bool { return o.IsPut() }},
		{`put k -- -v`, func(o clientv3.Op) bool { return string(o.ValueBytes()) == "-v" }},
		{`get k`, func(o clientv3.Op) bool { return o.IsGet() && o.RangeBytes() == nil }},
		{`g k --prefix`, func(o clientv3.Op) bool { return string(o.RangeBytes()) == "l" }},
		{`get k --rev=3 -- z`, func(o clientv3.Op) bool { return o.Rev() == 3 }},
		{`get k --count-only`, func(o clientv3.Op) bool { return o.IsCountOnly() }},
		{`get "" --prefix`, func(o clientv3.Op) bool { return string(o.KeyBytes()) == "\x00" }},
		{`del k --from-key`, func(o clientv3.Op) bool { return string(o.RangeBytes()) == "\x00" }},
	} {
		op, risky, err := parseRequest(tc.line)
		if err != nil || risky || !tc.check(op) {
			t.Errorf("parseRequest(%q): risky %v, %v", tc.line, risky, err)
		}
	}
	if _, risky, err := parseRequest(`del a z`); !risky || err != nil {
		t.Errorf("a delete of a range is risky: %v, %v", risky, err)
	}
	if _, risky, err := parseRequest(`del a z --range`); risky || err != nil {
		t.Errorf("a delete of a range with --range is not: %v, %v", risky, err)
	}
}

func TestParseRequestErrors(t *testing.T) {
	for line, code := range map[string]int{
		`put`:                     app.ExitInput,
		`putt k v`:                app.ExitInput,
		`delete k`:                app.ExitInput,
		`'' k`:                    app.ExitInput,
		`put k v --nosuch`:        app.ExitInput,
		`get k --help`:            app.ExitInput,
		`put "\q" v`:              app.ExitInput,
		`put k`:                   app.ExitBadArgs,
		`put k v --lease=zz`:      app.ExitBadArgs,
		`get k l --prefix`:        app.ExitBadArgs,
		`del a b c`:               app.ExitBadArgs,
		`get k --consistency=x`:   app.ExitFeature,
		`get k --order=sideways`:  app.ExitFeature,
		`get k --sort-by=nothing`: app.ExitFeature,
	} {
		if _, _, err := parseRequest(line); app.ExitCode(err) != code {
			t.Errorf("parseRequest(%q): %v, code %d, want %d", line, err, app.ExitCode(err), code)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(`put k v --lease=1 --prev-kv`)
	f.Add(`get a b --limit 3 --order DESCEND --sort-by MODIFY`)
	f.Add(`del "" --prefix --prev-kv`)
	f.Fuzz(func(t *testing.T, line string) {
		op, _, err := parseRequest(line)
		if err == nil && !op.IsPut() && !op.IsGet() && !op.IsDelete() {
			t.Errorf("%q is neither a request nor an error", line)
		}
	})
}
