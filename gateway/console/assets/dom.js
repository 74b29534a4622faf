// Small helpers that build and update the page. Nothing is ever written as
// HTML: what a replica tells is text.

export const $ = (id) => document.getElementById(id);

// h makes an element: h("td", { class: "num" }, "text", child).
export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  set(e, attributes);
  e.append(...children);
  return e;
}

// s makes an element of SVG.
export function s(tag, attributes = {}) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(e, attributes);
  return e;
}

// set sets attributes that differ; null and false remove one.
export function set(e, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) e.removeAttribute(name);
    else if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value);
  }
}

// text changes an element's text only if it differs, so that a selection in it
// stays.
export function text(e, value) {
  value = String(value);
  if (e.textContent !== value) e.textContent = value;
}

// vars sets custom properties, such as the length of a bar.
export function vars(e, values) {
  for (const [name, value] of Object.entries(values)) {
    if (e.style.getPropertyValue(name) !== String(value)) e.style.setProperty(name, value);
  }
}

// keyed makes the children of parent those of items, by key: children stay for as
// long as their key does. Places change only if order is true.
export function keyed(parent, items, key, make, update, order = true) {
  const old = parent.children_ ??= new Map();
  const seen = new Set();
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    if (seen.has(k)) continue;
    seen.add(k);
    let child = old.get(k);
    if (!child) {
      child = make(item);
      old.set(k, child);
      parent.insertBefore(child, order ? at : null);
    } else if (order && child !== at) {
      parent.insertBefore(child, at);
    }
    if (order) at = child.nextElementSibling;
    update(child, item);
  }
  for (const [k, child] of old) {
    if (seen.has(k)) continue;
    child.remove();
    old.delete(k);
  }
}

// busy reports whether somebody points into, selects in, or has the focus in e:
// then its rows stay where they are.
export function busy(e) {
  if (e.matches(":hover") || e.contains(document.activeElement)) return true;
  const selection = document.getSelection();
  return !!selection && !selection.isCollapsed && selection.containsNode(e, true);
}

// hear has screen readers say something when they are done with the rest.
export function hear(message) {
  text($("hear"), "");
  requestAnimationFrame(() => text($("hear"), message));
}

// cells makes a row of a table and keeps its cells by name.
export function row(columns) {
  const tr = h("tr");
  tr.cells_ = {};
  for (const [name, attributes, tag = "td"] of columns) {
    const td = h(tag, tag === "th" ? { scope: "row", ...attributes } : attributes);
    tr.cells_[name] = td;
    tr.append(td);
  }
  return tr;
}
