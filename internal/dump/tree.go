package dump

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// A tree is the printable form of a value: an object, a list, or a leaf. A leaf is a bool, an
// int64, a uint64 or one of the types below.
type (
	object []field
	list   []any
	// text is a string chosen by users.
	text string
	// word is a string that Leasehold defines: an ID, or the name of a choice.
	word string
)

type field struct {
	name  string
	value any
}

// choices maps values that are stored in records as numbers to their names.
var choices = map[reflect.Type]map[int64]string{
	reflect.TypeFor[fsm.AlarmKind](): {
		int64(fsm.NoSpace): "NOSPACE", int64(fsm.Corrupt): "CORRUPT",
		int64(fsm.Damaged): "CORRUPT (member differs)", int64(fsm.Split): "CORRUPT (no majority)",
	},
	reflect.TypeFor[fsm.Relation](): {
		int64(fsm.Equal): "=", int64(fsm.Greater): ">", int64(fsm.Less): "<", int64(fsm.NotEqual): "!=",
	},
	reflect.TypeFor[fsm.Target](): {
		int64(fsm.TargetVersion): "version", int64(fsm.TargetCreate): "create",
		int64(fsm.TargetMod): "mod", int64(fsm.TargetValue): "value",
		int64(fsm.TargetLease): "lease", int64(fsm.TargetLeaseAlive): "lease alive",
		int64(fsm.TargetNameToken): "token of name", int64(fsm.TargetLeaseName): "name of lease",
	},
	reflect.TypeFor[access.Kind](): words(
		access.Read, access.Write, access.ReadWrite, access.See, access.Hold, access.Manage),
	reflect.TypeFor[access.HolderKind](): {
		int64(access.Default): "everybody", int64(access.OfRole): "role", int64(access.OfUser): "user",
	},
	reflect.TypeFor[access.Resource](): words(
		access.Leases, access.LeaseKeys, access.Bytes, access.Rate),
	reflect.TypeFor[mvcc.SortBy](): {
		int64(mvcc.ByKey): "key", int64(mvcc.ByVersion): "version", int64(mvcc.ByCreate): "create",
		int64(mvcc.ByMod): "mod", int64(mvcc.ByValue): "value",
	},
}

// words returns the names of values that have a String method.
func words[T interface {
	~uint8
	String() string
}](list ...T) map[int64]string {
	out := make(map[int64]string)
	for _, v := range list {
		out[int64(v)] = v.String()
	}
	return out
}

// identifiers are the fields that are printed as 16 hexadecimal digits.
var identifiers = map[string]bool{
	"Lease": true, "Member": true, "Cluster": true, "Incarnation": true, "Nonce": true, "Vote": true,
	"Voters": true, "Outgoing": true, "Learners": true, "LearnersNext": true,
}

// tree returns the printable form of v. Zero fields are omitted, as they are in the records.
func tree(v reflect.Value) any { return treeOf(v, "") }

// treeOf is like tree, for the value of a field with the given name.
func treeOf(v reflect.Value, name string) any {
	if v.Kind() == reflect.Interface {
		return named(v.Elem())
	}
	switch x := v.Interface().(type) {
	case lease.Secret:
		return word(fmt.Sprintf("secret of %d bytes", len(x)))
	case []byte:
		if name == "Hash" { // the hash of a password
			return word(fmt.Sprintf("hash of %d bytes", len(x)))
		}
		return text(x)
	case lease.ID:
		return identifier(uint64(x))
	case lease.TTL:
		return int64(x)
	case lease.Token:
		// as text, because JSON readers may use floating point
		return word(strconv.FormatUint(uint64(x), 10))
	case word:
		return x
	}
	if names := choices[v.Type()]; names != nil {
		return choice(v, names)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return treeOf(v.Elem(), name)
	case reflect.Struct:
		return structTree(v)
	case reflect.Slice:
		out := make(list, v.Len())
		for i := range out {
			out[i] = treeOf(v.Index(i), name)
		}
		return out
	case reflect.Map:
		return mapTree(v)
	}
	return leaf(v, name)
}

func leaf(v reflect.Value, name string) any {
	switch {
	case v.Kind() == reflect.String:
		return text(v.String())
	case v.Kind() == reflect.Bool:
		return v.Bool()
	case v.CanInt() && identifiers[name]:
		return identifier(uint64(v.Int()))
	case v.CanInt():
		return v.Int()
	case v.CanUint() && identifiers[name]:
		return identifier(v.Uint())
	case v.CanUint():
		return v.Uint()
	}
	panic(fmt.Sprintf("dump: unsupported type %s", v.Type()))
}

func identifier(n uint64) word { return word(fmt.Sprintf("%016x", n)) }

func choice(v reflect.Value, names map[int64]string) any {
	n := int64(0)
	if v.CanInt() {
		n = v.Int()
	} else {
		n = int64(v.Uint())
	}
	return word(names[n])
}

// named returns the tree of a value in a field of interface type: a command, a result or an error.
// The tree includes the name of the value's type, unless the value is an error without data.
func named(v reflect.Value) any {
	err, isError := v.Interface().(error)
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	name := v.Type().Name()
	if isError && strings.ToLower(name[:1]) == name[:1] {
		return text(err.Error())
	}
	return object{{lower(strings.TrimSuffix(name, "Result")), treeOf(v, "")}}
}

func structTree(v reflect.Value) object {
	out := object{}
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		name := f.Name
		// session IDs are plain numbers
		if name == "ID" && v.Type() != reflect.TypeFor[fsm.Session]() {
			name = "Member"
		}
		switch {
		case f.Anonymous:
			out = append(out, structTree(x)...)
		case !f.IsExported(): // not part of the record
		case !empty(x) || shown(v.Type(), f.Name):
			out = append(out, field{lower(f.Name), treeOf(x, name)})
		}
	}
	return out
}

func empty(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// shown reports whether the zero value of a field is meaningful.
func shown(t reflect.Type, name string) bool {
	return t == reflect.TypeFor[fsm.Compare]() && (name == "Target" || name == "Relation") ||
		t == reflect.TypeFor[access.Permission]() && name == "Kind" ||
		t == reflect.TypeFor[access.Holder]() && name == "Kind" ||
		t == reflect.TypeFor[fsm.SetLimits]() && name == "Of" ||
		t == reflect.TypeFor[access.LimitChange]() && name == "What" ||
		t == reflect.TypeFor[access.LimitError]() && name == "What"
}

func mapTree(v reflect.Value) any {
	switch m := v.Interface().(type) {
	case map[string]string:
		var out object
		for _, k := range slices.Sorted(maps.Keys(m)) {
			out = append(out, field{k, text(m[k])})
		}
		return out
	case map[uint64]uint64:
		var out object
		for _, k := range slices.Sorted(maps.Keys(m)) {
			out = append(out, field{string(identifier(k)), identifier(m[k])})
		}
		return out
	}
	panic(fmt.Sprintf("dump: unsupported type %s", v.Type()))
}

// lower converts the name of a Go field or type to the printed name.
func lower(name string) string {
	n := 0
	for n < len(name) && unicode.IsUpper(rune(name[n])) {
		n++
	}
	if n > 1 && n < len(name) && name[n] != 's' {
		n-- // the last capital begins the next word
	}
	return strings.ToLower(name[:n]) + name[n:]
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(append(append(name, ':'), value...))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// MarshalJSON implements json.Marshaler. Text that is not valid UTF-8 becomes an object that
// contains its base64 encoding.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(t))})
}
