// Settings, the key, and "really?": the page's dialogs.

import { apiKey, setApiKey } from './api.js';
import { button, byId, el } from './dom.js';

function field(label, control, hint) {
  return el('label', { class: 'field' }, el('span', { class: 'field-label' }, label), control,
    hint ? el('span', { class: 'hint' }, hint) : null);
}
function numeric(value, min, max, step, placeholder) {
  const node = el('input', { type: 'number', min, max, step, placeholder, inputmode: 'decimal' });
  node.value = value;
  return node;
}
function choice(value, options) {
  const node = el('select', {}, ...options.map(([key, text]) => el('option', { value: key }, text)));
  node.value = value;
  return node;
}

// Shows the settings; `done(settings)` gets a changed copy when they are kept.
export function openSettings(settings, done) {
  const dialog = byId('settings');
  const system = el('textarea', { rows: '4', placeholder: 'None' });
  system.value = settings.system;
  const temperature = numeric(settings.temperature, 0, 2, 0.05, 'server’s default');
  const topP = numeric(settings.topP, 0, 1, 0.01, 'server’s default');
  const maxTokens = numeric(settings.maxTokens, 1, 1000000, 1, 'server’s default');
  const policy = choice(settings.policy, [['sinks', 'pinned sinks (stays stable)'], ['window', 'plain window (collapses at roll-over)']]);
  const pinSystem = el('input', { type: 'checkbox' });
  pinSystem.checked = settings.pinSystem;
  const evict = choice(settings.evict, [['token', 'token by token'], ['turn', 'whole oldest turns']]);
  const key = el('input', { type: 'password', autocomplete: 'off', placeholder: 'none' });
  key.value = apiKey();
  const form = el('form', { method: 'dialog' },
    el('h2', { id: 'settings-head' }, 'Settings'),
    el('fieldset', {}, el('legend', {}, 'Every reply'),
      el('div', { class: 'row' }, field('Temperature', temperature), field('Top p', topP), field('Most tokens', maxTokens))),
    el('fieldset', {}, el('legend', {}, 'New conversations'),
      field('System prompt', system),
      el('label', { class: 'check' }, pinSystem, ' pin the whole system prompt: it never leaves the window'),
      el('div', { class: 'row' }, field('Policy', policy), field('Evict', evict)),
      el('p', { class: 'hint' }, 'Fixed when a conversation begins. What leaves the window is not remembered under either policy: ' +
        'sinks give stability, not recall.')),
    el('fieldset', {}, el('legend', {}, 'Access'),
      field('API key', key, 'Kept in this tab only, until it is closed.')),
    el('div', { class: 'dialog-foot' }, button('Cancel', () => dialog.close('no')),
      el('button', { class: 'button primary', value: 'yes' }, 'Keep')));
  form.addEventListener('submit', () => {
    setApiKey(key.value.trim());
    done({ ...settings, system: system.value.trim(), temperature: temperature.value, topP: topP.value,
      maxTokens: maxTokens.value, policy: policy.value, pinSystem: pinSystem.checked, evict: evict.value });
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}

// Resolves to the text that was entered, or null. Without `input`, to '' for yes.
export function ask({ title, text, yes, input }) {
  const dialog = byId('ask');
  if (dialog.open) return Promise.resolve(null);
  const control = input ? el('input', { type: input.type || 'text', autocomplete: 'off', 'aria-label': title }) : null;
  if (control) control.value = input.value || '';
  const form = el('form', { method: 'dialog' }, el('h2', { id: 'ask-head' }, title), text ? el('p', {}, text) : null, control,
    el('div', { class: 'dialog-foot' }, button('Cancel', () => dialog.close('no')),
      el('button', { class: 'button primary', value: 'yes' }, yes)));
  dialog.replaceChildren(form);
  dialog.returnValue = '';
  dialog.showModal();
  (control || form.querySelector('.primary')).focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes' ? (control ? control.value.trim() : '') : null);
    }, { once: true });
  });
}

export async function askForKey() {
  const key = await ask({ title: 'This server wants a key', text: 'It is kept in this tab only, until it is closed.',
    yes: 'Use it', input: { type: 'password', value: apiKey() } });
  if (!key) return false;
  setApiKey(key);
  return true;
}
