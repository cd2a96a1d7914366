// Small helpers that build DOM nodes. Nothing here parses HTML: text stays text.

// el('button', {class: 'x', onclick: f, 'aria-label': 'Send'}, 'text', node, ...)
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

export function button(label, onclick, cls = 'button ghost') {
  return el('button', { type: 'button', class: cls, onclick }, label);
}

export const number = (value) => Math.round(value).toLocaleString('en-US');

// Copies text; the fallback serves pages on plain http, where the clipboard API is missing.
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el('textarea', { class: 'sr' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

export const reducedMotion = () => matchMedia('(prefers-reduced-motion: reduce)').matches;
