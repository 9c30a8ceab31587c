package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// inYAML matches the line in an error of the library.
var inYAML = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// Parse returns the only document of a text, nil if it is empty.
func Parse(text []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		switch err := d.Decode(&next); {
		case errors.Is(err, io.EOF):
		case err == nil:
			return nil, fmt.Errorf(":%d: a second document begins here; only one is allowed", next.Line)
		}
	}
	if err != nil {
		m := inYAML.FindStringSubmatch(err.Error())
		if m == nil || m[1] == "" {
			return nil, fmt.Errorf(": not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		return nil, fmt.Errorf(":%s: not YAML: %s", m[1], strings.TrimPrefix(err.Error(), m[0]))
	}
	if len(doc.Content) == 0 || IsNull(doc.Content[0]) {
		return nil, nil
	}
	return doc.Content[0], nil
}

// IsNull reports whether a name has no value, like many names in etcd's sample file.
func IsNull(n *yaml.Node) bool {
	n = Meant(n)
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// Meant returns n, or the node that n is an alias of.
func Meant(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}
