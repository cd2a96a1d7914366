// What surrounds the talk: keys, drawer, theme, composer, and the observer that tells whether the cache can be seen.

import { byId, el } from './dom.js';

const kPrompts = [
  'Tell me a long story about a ship that never comes to harbour.',
  'Explain why a bridge needs joints that can move.',
  'Write a short Python function that counts the words of a text.',
];

export function hello(send) {
  return el('div', { class: 'hello' },
    el('h2', {}, 'Talk for as long as you like.'),
    el('p', {}, 'The cache has a fixed number of slots. The first tokens stay pinned; the newest fill a ring, and the oldest of ' +
      'the ring make room. So the model goes on as steadily as it began.'),
    el('p', { class: 'note' }, 'Stability, not recall: what has left the window is gone for the model. The page shows you where that line runs.'),
    el('ul', { class: 'prompts' }, ...kPrompts.map((text) => el('li', {},
      el('button', { type: 'button', class: 'prompt', onclick: () => send(text) }, text)))));
}

function composer(app) {
  const text = byId('text');
  const grow = () => {
    text.style.height = 'auto';
    text.style.height = `${Math.min(text.scrollHeight, innerHeight * 0.35)}px`;
  };
  const submit = () => {
    if (app.running) return app.stop();
    if (!text.value.trim()) return undefined;
    app.send(text.value);
    text.value = '';
    grow();
    return undefined;
  };
  text.addEventListener('input', grow);
  text.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!app.running) submit();
  });
  byId('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
}

function keys(app) {
  addEventListener('keydown', (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName || '');
    const dialog = document.querySelector('dialog[open]');
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      if (!dialog) app.fresh();
    } else if (event.key === 'Escape' && !dialog) {
      if (byId('app').classList.contains('drawer')) app.closeDrawer();
      else if (byId('app').dataset.instruments === 'open') app.showInstruments(false);
      else app.stop();
    } else if (event.key === '/' && !typing && !dialog) {
      event.preventDefault();
      byId('text').focus();
    }
  });
}

function drawer(app) {
  byId('burger').addEventListener('click', () => {
    byId('app').classList.add('drawer');
    byId('shade').hidden = false;
    byId('burger').setAttribute('aria-expanded', 'true');
    byId('new').focus();
  });
  byId('shade').addEventListener('click', () => app.closeDrawer());
  byId('new').addEventListener('click', () => app.fresh());
  byId('open-settings').addEventListener('click', () => app.configure());
  byId('compare').addEventListener('click', () => app.compare());
  byId('toggle-cache').addEventListener('click', () => app.showCache(byId('app').dataset.cache !== 'open'));
}

function theme() {
  const names = { auto: 'Auto', light: 'Light', dark: 'Dark' };
  const show = (wanted) => {
    byId('theme').textContent = names[wanted];
    byId('theme').setAttribute('aria-label', `Colours: ${names[wanted]}. Change.`);
  };
  byId('theme').addEventListener('click', () => {
    const next = { auto: 'light', light: 'dark', dark: 'auto' };
    globalThis.ballastTheme.set(next[globalThis.ballastTheme.choice()]);
  });
  addEventListener('ballast-theme', (event) => show(event.detail.wanted));
  show(globalThis.ballastTheme.choice());
}

// The cache is watched while any of it is on screen and the tab is in front.
function observe(app) {
  const shown = new Map();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) shown.set(entry.target, entry.isIntersecting);
    app.seen = [...shown.values()].some(Boolean);
    app.watch();
  });
  observer.observe(byId('band'));
  observer.observe(byId('instruments'));
  document.addEventListener('visibilitychange', () => app.watch());
}

export function wire(app) {
  app.seen = false;
  composer(app);
  keys(app);
  drawer(app);
  theme();
  observe(app);
}
