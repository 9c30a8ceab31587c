// Questions before acts. Each act asks once, and says what will happen; what it does is bound to
// what was shown when it asked.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { trouble } from "./parts.js";

let put = () => {};

// ask shows a question: {title, text, fields, verb, act}. text is what will happen. fields are
// {name, label, value, kind, hint}. act(values) does it, and throws why it could not. ask is true
// once it was done, and false if the user thought better of it.
export const ask = (question) => new Promise((done) => put({ ...question, done }));

// Questions is where they are shown.
export function Questions() {
  const [question, set] = useState(null);
  useEffect(() => {
    put = set;
  }, []);
  return question && html`<${Question} key=${question.title} question=${question}
    close=${(done) => {
      set(null);
      question.done(done);
    }} />`;
}

function Question({ question: q, close }) {
  const box = useRef(null);
  const before = useRef(document.activeElement);
  const [err, fail] = useState(null);
  const [busy, work] = useState(false);
  useEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => {
      dialog.close(); // while it is open, nothing else can have the focus
      before.current?.focus?.();
    };
  }, []);
  const submit = async (e) => {
    e.preventDefault();
    if (busy) return;
    const values = Object.fromEntries(new FormData(e.currentTarget));
    work(true);
    fail(null);
    try {
      await q.act(values);
      close(true);
    } catch (why) {
      fail(why);
      work(false);
    }
  };
  return html`<dialog ref=${box} aria-labelledby="question" onCancel=${(e) => {
    e.preventDefault();
    if (!busy) close(false);
  }}>
    <form method="dialog" onSubmit=${submit}>
      <h2 id="question">${q.title}</h2>
      <div class="what">${q.text}</div>
      ${(q.fields || []).map((f) => html`<label key=${f.name}>${f.label}
        ${f.kind === "lines"
          ? html`<textarea name=${f.name} rows="4" spellcheck="false">${f.value || ""}</textarea>`
          : html`<input name=${f.name} type=${f.kind || "text"} value=${f.value || ""}
              autocomplete="off" spellcheck="false" />`}
        ${f.hint && html`<small>${f.hint}</small>`}</label>`)}
      ${trouble(err)}
      <div class="buttons">
        <button type="button" onClick=${() => close(false)}>Cancel</button>
        <button type="submit" class="act" disabled=${busy}>${busy ? "Asking" : q.verb}</button>
      </div>
    </form></dialog>`;
}
