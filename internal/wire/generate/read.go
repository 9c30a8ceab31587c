package main

import "google.golang.org/protobuf/compiler/protogen"

// read generates the reader of a message. A message without a oneof is read into memory provided by
// the caller. A message with a oneof is allocated together with its arm, once the arm is known.
func (g *generator) read(m *protogen.Message, o *protogen.Oneof) {
	n := m.GoIdent.GoName
	g.line("")
	if o != nil {
		g.line("func (r *reader) read%s(outer int) (m *pb.%[1]s) {", n)
		for _, f := range m.Fields {
			if !isArm(f) && kindOf(f) != unsupported {
				g.line("var %s %s", local(f), fieldType(f))
			}
		}
		g.fields(m, func(f *protogen.Field) string { return local(f) })
		g.line("if m == nil { m = &pb.%s{} }", n)
		for _, f := range m.Fields {
			if !isArm(f) && kindOf(f) != unsupported {
				g.line("m.%s = %s", f.GoName, local(f))
			}
		}
		g.line("return m")
		g.line("}")
	} else {
		g.room(m)
		if roomy(m) {
			g.line("func (r *reader) read%s(c *%s, outer int) {", n, roomType(m))
			g.line("m := &c.message")
		} else {
			g.line("func (r *reader) read%s(m *%s, outer int) {", n, roomType(m))
		}
		for _, f := range m.Fields {
			if apart[name(f)] {
				g.line("if n := count(r.b); n > 0 { m.%s = make(%s, 0, n) }", f.GoName, fieldType(f))
			}
		}
		if recursive(m) {
			g.line("if r.depth++; r.depth > maxDepth { r.odd = true }")
		}
		g.fields(m, func(f *protogen.Field) string { return "m." + f.GoName })
		if recursive(m) {
			g.line("r.depth--")
		}
		g.line("}")
	}
	for _, f := range m.Fields {
		if apart[name(f)] {
			g.apart(f.Message)
		}
	}
}

// room generates a type that contains a message and everything allocated together with it.
func (g *generator) room(m *protogen.Message) {
	if !roomy(m) {
		return
	}
	g.line("type %s struct {", roomType(m))
	g.line("message pb.%s", m.GoIdent.GoName)
	for _, f := range m.Fields {
		switch {
		case inline[name(f)]:
			g.line("%s %s", local(f), roomType(f.Message))
		case room[name(f)] > 0:
			g.line("%s [%d]%s", local(f), room[name(f)], fieldType(f)[2:])
			if first(f) {
				g.line("%sFirst %s", local(f), roomType(f.Message))
			}
		}
	}
	g.line("}")
	g.line("")
}

// first reports whether a list's first element is allocated together with the list, because there
// is usually only one.
func first(f *protogen.Field) bool {
	return room[name(f)] == 1 && !hasBody(f.Message)
}

func roomType(m *protogen.Message) string {
	if roomy(m) {
		return "room" + m.GoIdent.GoName
	}
	return "pb." + m.GoIdent.GoName
}

// messageIn returns an expression for a pointer to the message in expr, which has the type that
// roomType returns.
func messageIn(m *protogen.Message, expr string) string {
	if roomy(m) {
		return "&" + expr + ".message"
	}
	return "&" + expr
}

// fields generates the loop over the fields of a message. to returns the destination of a field.
func (g *generator) fields(m *protogen.Message, to func(*protogen.Field) string) {
	g.line("for r.more(outer) {")
	g.line("switch r.field() {")
	for _, f := range m.Fields {
		k := kindOf(f)
		if k == unsupported {
			continue
		}
		wire := "typeVarint"
		if k == text || k == blob || k == message || f.Desc.IsList() {
			wire = "typeBytes"
		}
		g.line("case %d<<3 | %s:", f.Desc.Number(), wire)
		switch {
		case isArm(f):
			g.arm(f)
		case k == message && f.Desc.IsList():
			g.element(f, to(f))
		case k == message:
			g.child(f, to(f))
		case k == fixed64:
			g.line("%[1]s = readFixed64(r, %[1]s)", to(f))
		case f.Desc.IsList() && (k == text || k == blob):
			g.line("%[1]s = append(%[1]s, %s)", to(f), scalar(f))
		case f.Desc.IsList():
			g.line("for list := r.enter(); r.more(list); { %[1]s = append(%[1]s, %s) }", to(f), scalar(f))
		default:
			g.line("%s = %s", to(f), scalar(f))
		}
	}
	g.line("default: r.odd = true")
	g.line("}")
	g.line("}")
}

// scalar returns an expression that reads a scalar field.
func scalar(f *protogen.Field) string {
	switch kindOf(f) {
	case boolean:
		return "r.flag()"
	case text:
		return "r.text()"
	case blob:
		if isKey(f) {
			return "r.key()"
		}
		return "r.bytes()"
	}
	if goType(f) == "uint64" {
		return "r.varint()"
	}
	return goType(f) + "(r.varint())"
}

// child generates the code that reads a message that can occur only once.
func (g *generator) child(f *protogen.Field, to string) {
	n := f.Message.GoIdent.GoName
	g.line("if r.once(%s == nil) {", to)
	switch {
	case hasBody(f.Message):
		g.line("%s = r.read%s(r.enter())", to, n)
	case inline[name(f)]:
		g.line("r.read%s(&c.%s, r.enter())", n, local(f))
		g.line("%s = %s", to, messageIn(f.Message, "c."+local(f)))
	default:
		g.line("n := &%s{}", roomType(f.Message))
		g.line("r.read%s(n, r.enter())", n)
		g.line("%s = %s", to, pointer(f.Message))
	}
	g.line("}")
}

// pointer returns an expression for a pointer to the message, where the variable n points to a
// value of roomType.
func pointer(m *protogen.Message) string {
	if roomy(m) {
		return "&n.message"
	}
	return "n"
}

// element generates the code that reads one message in a list.
func (g *generator) element(f *protogen.Field, to string) {
	n := f.Message.GoIdent.GoName
	if room[name(f)] > 0 && !first(f) {
		g.line("if %s == nil { %[1]s = c.%s[:0] }", to, local(f))
	}
	switch {
	case first(f):
		g.line("n := &c.%sFirst", local(f))
		g.line("if %s == nil { %[1]s = c.%s[:0] } else { n = &%s{} }", to, local(f), roomType(f.Message))
		g.line("r.read%s(n, r.enter())", n)
		g.line("%[1]s = append(%[1]s, %s)", to, pointer(f.Message))
	case apart[name(f)]:
		g.line("n, ok := read%sApart(r.view())", n)
		g.line("r.odd = r.odd || !ok")
		g.line("%[1]s = append(%[1]s, n)", to)
	case hasBody(f.Message):
		g.line("%[1]s = append(%[1]s, r.read%s(r.enter()))", to, n)
	default:
		g.line("n := &%s{}", roomType(f.Message))
		g.line("r.read%s(n, r.enter())", n)
		g.line("%[1]s = append(%[1]s, %s)", to, pointer(f.Message))
	}
}

// arm generates the code that reads an arm of the oneof and allocates the message together with it.
func (g *generator) arm(f *protogen.Field) {
	m, wrapper := f.Parent.GoIdent.GoName, f.GoIdent.GoName
	g.line("if r.once(m == nil) {")
	if f.Message != nil && hasBody(f.Message) {
		g.line("m = &pb.%s{%s: &pb.%s{%s: r.read%s(r.enter())}}",
			m, f.Oneof.GoName, wrapper, f.GoName, f.Message.GoIdent.GoName)
		g.line("}")
		return
	}
	g.line("c := &struct {")
	g.line("message pb.%s", m)
	g.line("wrapper pb.%s", wrapper)
	if f.Message != nil {
		g.line("body %s", roomType(f.Message))
	}
	g.line("}{}")
	if f.Message != nil {
		g.line("r.read%s(&c.body, r.enter())", f.Message.GoIdent.GoName)
		g.line("c.wrapper.%s = %s", f.GoName, messageIn(f.Message, "c.body"))
	} else {
		g.line("c.wrapper.%s = %s", f.GoName, scalar(f))
	}
	g.line("c.message.%s = &c.wrapper", f.Oneof.GoName)
	g.line("m = &c.message")
	g.line("}")
}

// apart generates the reader of an element that falls back to the standard decoder on its own.
func (g *generator) apart(m *protogen.Message) {
	n := m.GoIdent.GoName
	g.line("")
	g.line("func read%sApart(b []byte) (m *pb.%[1]s, ok bool) {", n)
	g.line("r := reader{b: b, end: len(b)}")
	g.line("if m = r.read%s(r.end); !r.odd { return m, true }", n)
	g.line("m = &pb.%s{}", n)
	g.line("return m, standardPart.Unmarshal(b, m) == nil")
	g.line("}")
}
