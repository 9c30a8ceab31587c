package table

import (
	"strings"
	"testing"
)

// A table looks like one drawn by etcdctl's library.
func TestWrite(t *testing.T) {
	for _, c := range []struct {
		head []string
		rows [][]string
		want string
	}{
		{
			[]string{"ID", "peer addrs", "is_learner"},
			[][]string{{"1", "http://a:1\nhttp://b:2", "false"}, {"日本", "", "x"}},
			`
┌──────┬────────────┬────────────┐
│  ID  │ PEER ADDRS │ IS LEARNER │
├──────┼────────────┼────────────┤
│    1 │ http://a:1 │      false │
│      │ http://b:2 │            │
│ 日本 │            │          x │
└──────┴────────────┴────────────┘
`,
		},
		{[]string{"a", "Name"}, nil, `
┌───┬──────┐
│ A │ NAME │
└───┴──────┘
`},
		{[]string{"a", "b"}, [][]string{{" padded ", "a long value"}, {"only"}}, `
┌────────┬──────────────┐
│   A    │      B       │
├────────┼──────────────┤
│ padded │ a long value │
│   only │              │
└────────┴──────────────┘
`},
	} {
		var b strings.Builder
		if err := Write(&b, c.head, c.rows); err != nil || "\n"+b.String() != c.want {
			t.Errorf("%v:\n%swant%s(%v)", c.head, b.String(), c.want, err)
		}
	}
}
