package settings

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Decode decodes the document n into the variable that to points to. If n is nil, the variable is
// unchanged. The "yaml" tag gives the name of a struct field. A field with the tag ",line" is set
// to the number of the line where the struct begins. Fields can be structs, lists, maps from
// strings, strings, durations, bools, and pointers to these types. Fields that the document does
// not mention keep their values.
func Decode(n *yaml.Node, to any) error {
	if n == nil {
		return nil
	}
	return decode(n, reflect.ValueOf(to).Elem(), "the file")
}

func fail(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf(":%d: %s", n.Line, fmt.Sprintf(format, args...))
}

// decode decodes n into v. name identifies the setting in errors.
func decode(n *yaml.Node, v reflect.Value, name string) error {
	if IsNull(n) {
		return nil
	}
	at := n.Line // line of the alias, not of its target
	n = Resolve(n)
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decode(n, v.Elem(), name)
	case reflect.Struct, reflect.Map:
		if n.Kind != yaml.MappingNode {
			return fail(n, "%s must contain settings, such as \"name: value\", each on its own line",
				name)
		}
		if v.Kind() == reflect.Map {
			return decodeMap(n, v, name)
		}
		return decodeStruct(n, v, name, at)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return fail(n, "%s must be a list, such as \"[a, b]\"", name)
		}
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, c := range n.Content {
			if IsNull(c) {
				return fail(c, "an element of %s is missing", name)
			}
			if err := decode(c, list.Index(i), "an element of "+name); err != nil {
				return err
			}
		}
		v.Set(list)
		return nil
	}
	return decodeOne(n, v, name)
}

// decodeOne is like decode, for a single value.
func decodeOne(n *yaml.Node, v reflect.Value, name string) error {
	if n.Kind != yaml.ScalarNode {
		return fail(n, "%s must be a single value, not a list or a mapping", name)
	}
	switch to := v.Addr().Interface().(type) {
	case *bool:
		if n.Tag != "!!bool" {
			return fail(n, "%s must be true or false, without quotes", name)
		}
		return n.Decode(to)
	case *time.Duration:
		d, err := time.ParseDuration(n.Value)
		if err != nil {
			return fail(n, "%s must be a duration such as 30s", name)
		}
		*to = d
	case *string:
		if n.Tag != "!!str" {
			return fail(n, "%s must be text; quote it: \"%s\"", name, n.Value)
		}
		*to = n.Value
	default:
		panic(fmt.Sprintf("settings: unsupported type %s", v.Type()))
	}
	return nil
}

// pairs calls do for each name and its value. It returns an error if a name is repeated.
func pairs(n *yaml.Node, of string, do func(name, value *yaml.Node) error) error {
	lines := make(map[string]int)
	for i := 0; i < len(n.Content); i += 2 {
		name := Resolve(n.Content[i])
		if name.Kind != yaml.ScalarNode {
			return fail(name, "invalid setting name in %s", of)
		}
		if line := lines[name.Value]; line != 0 {
			return fail(name, "%s is already set, on line %d", name.Value, line)
		}
		lines[name.Value] = name.Line
		if err := do(name, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func decodeMap(n *yaml.Node, v reflect.Value, of string) error {
	m := reflect.MakeMap(v.Type())
	err := pairs(n, of, func(name, value *yaml.Node) error {
		if IsNull(value) {
			return fail(name, "%s has no value", name.Value)
		}
		x := reflect.New(v.Type().Elem()).Elem()
		if err := decode(value, x, name.Value); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(name.Value), x)
		return nil
	})
	v.Set(m)
	return err
}

func decodeStruct(n *yaml.Node, v reflect.Value, of string, line int) error {
	fields := make(map[string]reflect.Value)
	var names []string
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case option == "line":
			v.Field(i).SetInt(int64(line))
		case name != "":
			fields[name] = v.Field(i)
			names = append(names, name)
		}
	}
	return pairs(n, of, func(name, value *yaml.Node) error {
		field, ok := fields[name.Value]
		if !ok {
			return fail(name, "unknown setting %q in %s%s", name.Value, of,
				didYouMean(name.Value, names))
		}
		return decode(value, field, name.Value)
	})
}

// didYouMean returns the end of the error message for an unknown name.
func didYouMean(typed string, names []string) string {
	if near := Nearest(strings.ReplaceAll(typed, "_", "-"), names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; valid settings are " + strings.Join(names, ", ")
}
