package main

import (
	"slices"

	"google.golang.org/protobuf/compiler/protogen"
)

// write generates the writer of a message. It writes the last field first; see writer.
func (g *generator) write(m *protogen.Message, o *protogen.Oneof) {
	g.line("")
	g.line("func (w *writer) write%s(m *pb.%[1]s) {", m.GoIdent.GoName)
	g.line("if m == nil { return }")
	for _, f := range m.Fields {
		if kindOf(f) == unsupported {
			g.line("if %s { w.standard(m); return }", isSet(f))
		}
	}
	g.line("w.known(m)")
	if o != nil {
		g.line("switch x := m.%s.(type) {", o.GoName)
		for _, f := range o.Fields {
			g.line("case *pb.%s:", f.GoIdent.GoName)
			g.arms(f)
		}
		g.line("}")
	}
	fields := slices.Clone(m.Fields)
	slices.SortFunc(fields, func(a, b *protogen.Field) int {
		return int(b.Desc.Number()) - int(a.Desc.Number())
	})
	for _, f := range fields {
		if !isArm(f) {
			g.writeField(f)
		}
	}
	g.line("}")
}

// isSet returns a condition that is true if an unsupported field is set.
func isSet(f *protogen.Field) string {
	if f.Desc.HasOptionalKeyword() {
		return "m." + f.GoName + " != nil"
	}
	if f.Desc.IsList() || f.Desc.IsMap() {
		return "len(m." + f.GoName + ") > 0"
	}
	return "m." + f.GoName + " != 0"
}

// arms generates the code that writes an arm of a oneof. An arm is written even if it is zero.
func (g *generator) arms(f *protogen.Field) {
	n := f.Desc.Number()
	switch kindOf(f) {
	case message:
		g.line("end := w.i")
		g.line("w.write%s(x.%s)", f.Message.GoIdent.GoName, f.GoName)
		g.line("w.close(%d, end)", n)
	case text:
		g.line("w.setText(%d, x.%s)", n, f.GoName)
	case blob:
		g.line("w.setBytes(%d, x.%s)", n, f.GoName)
	case boolean:
		g.line("if x.%s { w.set(%d, 1) } else { w.set(%[2]d, 0) }", f.GoName, n)
	case unsupported, varint, enum, fixed64:
		g.line("w.set(%d, %s)", n, number(f, "x."+f.GoName))
	}
}

func (g *generator) writeField(f *protogen.Field) {
	n, field := f.Desc.Number(), "m."+f.GoName
	k := kindOf(f)
	switch {
	case k == unsupported:
	case k == message && f.Desc.IsList():
		g.each(field)
		g.line("end := w.i")
		g.line("w.write%s(%s[i])", f.Message.GoIdent.GoName, field)
		g.line("w.close(%d, end)", n)
		g.line("}")
	case k == message:
		g.line("if %s != nil {", field)
		g.line("end := w.i")
		g.line("w.write%s(%s)", f.Message.GoIdent.GoName, field)
		g.line("w.close(%d, end)", n)
		g.line("}")
	case f.Desc.IsList() && (k == text || k == blob):
		g.each(field)
		g.line("w.%s(%d, %s[i])", map[kind]string{text: "setText", blob: "setBytes"}[k], n, field)
		g.line("}")
	case f.Desc.IsList():
		g.line("if len(%s) > 0 {", field)
		g.line("end := w.i")
		g.each(field)
		if k == fixed64 {
			g.line("w.fixed64(%s)", number(f, field+"[i]"))
		} else {
			g.line("w.varint(%s)", number(f, field+"[i]"))
		}
		g.line("}")
		g.line("w.close(%d, end)", n)
		g.line("}")
	case k == blob && f.Desc.HasOptionalKeyword():
		g.line("if %s != nil { w.setBytes(%d, %[1]s) }", field, n)
	case k == text:
		g.line("w.text(%d, %s)", n, field)
	case k == blob:
		g.line("w.bytes(%d, %s)", n, field)
	case k == boolean:
		g.line("w.flag(%d, %s)", n, field)
	default:
		g.line("w.number(%d, %s)", n, number(f, field))
	}
}

// each begins a loop over a list, starting at its end.
func (g *generator) each(field string) { g.line("for i := len(%s) - 1; i >= 0; i-- {", field) }

// number returns an expression of type uint64.
func number(f *protogen.Field, expr string) string {
	if goType(f) == "uint64" {
		return expr
	}
	return "uint64(" + expr + ")"
}
