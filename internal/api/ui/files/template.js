// Templates: html`<p class=${c}>${text}</p>` makes what preact draws. A template is HTML in which each
// tag is closed, by "/>" or by "<//>" too. A value stands for the name of a tag (a component), for all
// of a property, for properties ("...${all}"), or among children. No value is read as HTML.

import { h } from "./vendor/preact.js";

// slot stands in the text of a template where a value comes.
const slot = "\u0001";

// A token is a tag that closes, one that opens (its name, properties, and "/" if it has no end), or text.
const token = /<\/[^>]*>|<([^\s/>]+)((?:"[^"]*"|[^"/>]|\/(?!>))*)(\/?)>|[^<]+/g;
const property = /(\.\.\.|[^\s=]+)(?:=?("[^"]*"|\u0001))?/g;

// parse returns the children of a template: texts, {name, properties, children}, and numbers of values.
function parse(strings) {
  let next = 0;
  const value = (text) => (text === slot ? next++ : text);
  const open = [[]];
  for (const [text, name, properties, closed] of strings.join(slot).matchAll(token)) {
    if (name) {
      const node = { name: value(name), children: [] };
      node.properties = [...properties.matchAll(property)].map(([, key, given]) => (
        [key, value(given?.replaceAll('"', "") ?? true)]));
      open.at(-1).push(node);
      if (!closed) open.push(node.children);
    } else if (text[0] === "<") {
      open.pop();
    } else {
      // A line break, and the spaces around it, are only there for those who read the template.
      text.split(slot).forEach((part, i) => open.at(-1).push(
        ...i > 0 ? [next++] : [], ...[part.replace(/^\s*\n\s*|\s*\n\s*$/g, "")].filter(Boolean)));
    }
  }
  return open[0];
}

// make makes a node of a template with the values that stand in it.
function make(node, values) {
  const of = (x) => (typeof x === "number" ? values[x] : x);
  if (typeof node !== "object") return of(node);
  const properties = {};
  for (const [key, value] of node.properties) {
    Object.assign(properties, key === "..." ? of(value) : { [key]: of(value) });
  }
  return h(of(node.name), properties, ...node.children.map((child) => make(child, values)));
}

const known = new WeakMap(); // what was parsed, by the texts of a template

export function html(strings, ...values) {
  if (!known.has(strings)) known.set(strings, parse(strings));
  const all = known.get(strings).map((node) => make(node, values));
  return all.length > 1 ? all : all[0];
}
