package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// yamlPrinter writes what jsonPrinter does as YAML, with the same names in the same order. Each
// answer is a document.
type yamlPrinter struct {
	json  jsonPrinter
	later bool // an answer was written
}

func (y *yamlPrinter) print(w io.Writer, a answer) error {
	var text, out bytes.Buffer
	if err := y.json.print(&text, a); err != nil {
		return err
	}
	if y.later {
		out.WriteString("---\n")
	}
	y.later = true
	if err := writeYAML(&out, text.Bytes()); err != nil {
		return err
	}
	_, err := w.Write(out.Bytes())
	return err
}

// writeYAML writes a JSON value as a YAML document.
func writeYAML(w io.Writer, text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber() // IDs have 64 bits
	node, err := yamlNode(dec)
	if err != nil {
		return err
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(node); err != nil {
		return err
	}
	return enc.Close()
}

// yamlNode reads one JSON value. Unlike a map, the node keeps the order of the names.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		for dec.More() { // the names of an object are read as values are
			part, err := yamlNode(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, part)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle // [] or {}
		}
		_, err := dec.Token() // the end
		return n, err
	case string:
		n := new(yaml.Node)
		return n, n.Encode(v) // with quotes if a reader could take it for something else
	default: // a number, true, false or null, which YAML writes as JSON does
		if v == nil {
			v = "null"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v)}, nil
	}
}
