// Confirmations of actions. Each action asks once, and announces its effect; it applies only to
// what was shown when it asked.

import { html, trouble, useEffect, useRef, useState } from "./parts.js";

let put = () => {};

// ask shows a question: {title, text, fields, verb, act}. text describes the effect. fields are
// {name, label, value, kind, hint, known}; known is the autocomplete hint for the browser.
// act(values) performs the action, and throws if it fails. ask resolves to true once it is done,
// and to false if the user cancels.
export const ask = (question) => new Promise((done) => put({ ...question, done }));

// Questions shows the current question.
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
  useEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => {
      dialog.close(); // while it is open, nothing else can have the focus
      before.current?.focus?.();
    };
  }, []);
  const cancel = (e) => {
    e.preventDefault();
    close(false);
  };
  return html`<dialog ref=${box} aria-labelledby="question" onCancel=${cancel}>
    <${Form} fields=${q.fields} verb=${q.verb} cancel=${cancel} act=${async (values) => {
      await q.act(values);
      close(true);
    }}><h2 id="question">${q.title}</h2><div class="what">${q.text}</div><//></dialog>`;
}

// Form asks for the values of fields, calls act(values), and shows why it failed.
export function Form({ fields = [], verb, act, cancel, children, ...rest }) {
  const [err, fail] = useState(null);
  const [busy, work] = useState(false);
  const submit = async (e) => {
    e.preventDefault();
    if (busy) return;
    const values = Object.fromEntries(new FormData(e.currentTarget));
    work(true);
    fail(null);
    await act(values).catch(fail);
    work(false);
  };
  return html`<form ...${rest} onSubmit=${submit}>${children}
    ${fields.map((f) => html`<label key=${f.name}>${f.label}
      ${f.kind === "lines"
        ? html`<textarea name=${f.name} rows="4" spellcheck="false">${f.value || ""}</textarea>`
        : html`<input name=${f.name} type=${f.kind || "text"} defaultValue=${f.value || ""}
            autocomplete=${f.known || "off"} spellcheck="false" />`}
      ${f.hint && html`<small>${f.hint}</small>`}</label>`)}
    ${trouble(err)}
    <div class="buttons">
      ${cancel && html`<button type="button" onClick=${cancel}>Cancel</button>`}
      <button class=${cancel && "act"} disabled=${busy}>${busy ? "Asking" : verb}</button>
    </div></form>`;
}
