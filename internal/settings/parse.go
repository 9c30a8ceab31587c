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

// yamlPrefix matches the line number in an error from the YAML library.
var yamlPrefix = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// Parse returns the single document in a text, or nil if the text is empty.
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
		m := yamlPrefix.FindStringSubmatch(err.Error())
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

// IsNull reports whether a setting has no value, as is the case for many settings in etcd's sample
// file.
func IsNull(n *yaml.Node) bool {
	n = Resolve(n)
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// Resolve returns n or, if n is an alias, the node it refers to.
func Resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}
