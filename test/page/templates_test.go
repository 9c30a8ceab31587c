package page

import (
	"encoding/json"
	"slices"
	"testing"
)

// Goal: templates make what they say: elements and components, properties, texts without the line
// breaks of the source, and values that stay what they are, even if they look like HTML.
func TestTemplates(t *testing.T) {
	p := open(t, cluster(t, 1)[0].url+"/ui/")
	var got string
	p.eval(`import("./template.js").then(({ html }) => {
		const shown = (x) => Array.isArray(x) ? x.map(shown).join(";") : x?.props
			? (x.type.name || x.type) + (x.key ? " " + x.key : "") + JSON.stringify(x.props,
				(k, v) => k === "children" ? undefined : v) + "(" + shown(x.props.children) + ")"
			: String(x ?? "");
		const Part = () => {};
		const all = { b: 1, c: "2" };
		const hostile = '<img src="x">';
		return JSON.stringify([
			html`+"`<p>\n  a  b\n  <b>c</b> d ${1}${2}\n  <br/> ${\"e\"}\n</p>`"+`,
			html`+"`<p class=\"x > y/z\" id=${3} hidden ...${all} c=${4}>${hostile}</p>`"+`,
			html`+"`<${Part} key=${5} of=${all}>${[6, null]}<i>${7}</i><//><${Part} />`"+`,
			html`+"`a > b &amp; ${hostile}`"+`,
			html`+"`\n  ${hostile}\n`"+`,
			[1, 2].map((i) => html`+"`<u title=${i}>${i}</u>`"+`),
		].map(shown));
	})`, &got)
	var list []string
	if err := json.Unmarshal([]byte(got), &list); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`p{}(a  b;b{}(c); d ;1;2;br{}(); ;e)`,
		`p{"class":"x > y/z","id":3,"hidden":true,"b":1,"c":4}(<img src="x">)`,
		`Part 5{"of":{"b":1,"c":"2"}}(6;;i{}(7));Part{}()`,
		`a > b &amp; ;<img src="x">`,
		`<img src="x">`,
		`u{"title":1}(1);u{"title":2}(2)`,
	}
	if !slices.Equal(list, want) {
		t.Errorf("got  %q\nwant %q", list, want)
	}
}
