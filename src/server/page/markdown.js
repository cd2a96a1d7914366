// Block Markdown -> DOM nodes, made for text that is still arriving: the source is cut into blocks, and only
// blocks whose source changed are built again. Never innerHTML.

import { copy, el } from './dom.js';
import { inline } from './inline.js';

const kFence = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)[^`]*$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const kRule = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const kQuote = /^ {0,3}> ?/;
const kTableRule = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// Lines -> [{kind, source, ...}], in one pass.
export function blocks(text) {
  const lines = text.split('\n');
  const list = [];
  let i = 0;
  const startsBlock = (line) => kFence.test(line) || kHeading.test(line) || kQuote.test(line) || kRule.test(line) ||
    /^ {0,3}([-*+]|1[.)])\s/.test(line);
  while (i < lines.length) {
    const line = lines[i];
    const from = i;
    let kind = 'text';
    let extra = {};
    const fence = kFence.exec(line);
    if (line.trim() === '') { ++i; continue; }
    if (fence) {
      kind = 'code';
      const closing = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
      ++i;
      while (i < lines.length && !closing.test(lines[i])) ++i;
      extra = { language: fence[2], body: lines.slice(from + 1, i).join('\n') };
      ++i;
    } else if (kHeading.test(line)) {
      kind = 'heading';
      ++i;
    } else if (kRule.test(line)) {
      kind = 'rule';
      ++i;
    } else if (kQuote.test(line)) {
      kind = 'quote';
      while (i < lines.length && lines[i].trim() !== '' && (kQuote.test(lines[i]) || !startsBlock(lines[i]))) ++i;
    } else if (kItem.test(line)) {
      kind = 'list';
      i = endOfList(lines, i);
    } else if (line.includes('|') && i + 1 < lines.length && kTableRule.test(lines[i + 1]) && lines[i + 1].includes('-')) {
      kind = 'table';
      while (i < lines.length && lines[i].includes('|')) ++i;
    } else {
      ++i;
      while (i < lines.length && lines[i].trim() !== '' && !startsBlock(lines[i])) ++i;
    }
    list.push({ kind, lines: lines.slice(from, i), source: lines.slice(from, i).join('\n'), ...extra });
  }
  return list;
}

function endOfList(lines, i) {
  const ordered = (line) => /^\s*\d/.test(line);
  const kind = ordered(lines[i]);
  ++i;
  while (i < lines.length) {
    const line = lines[i];
    const item = kItem.exec(line);
    if (line.trim() === '') {  // a blank line ends the list unless an item or an indented line follows
      const next = lines[i + 1];
      if (next === undefined || !(/^\s{2,}\S/.test(next) || (kItem.test(next) && ordered(next) === kind))) break;
    } else if (item && item[1].length < 2 && ordered(line) !== kind) {
      break;
    } else if (!item && !/^\s/.test(line) && (kFence.test(line) || kHeading.test(line) || kQuote.test(line))) {
      break;
    }
    ++i;
  }
  return i;
}

function codeBlock(block) {
  const code = el('code', {}, block.body);
  const button = el('button', { type: 'button', class: 'copy' }, 'Copy');
  button.addEventListener('click', async () => {
    button.textContent = (await copy(code.textContent)) ? 'Copied' : 'Not copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  return el('div', { class: 'code' },
    el('div', { class: 'code-head' }, el('span', {}, block.language || 'text'), button),
    el('pre', { tabindex: '0', 'aria-label': `${block.language || 'text'} block` }, code));
}

function listBlock(lines, open, depth = 0) {
  const first = kItem.exec(lines[0]);
  const base = first[1].length;
  const ordered = /\d/.test(first[2]);
  const list = el(ordered ? 'ol' : 'ul', ordered ? { start: parseInt(first[2], 10) } : {});
  const items = [];
  for (const line of lines) {
    const item = kItem.exec(line);
    if (item && item[1].length <= base + 1) {
      items.push({ text: item[4], inner: [], strip: item[1].length + item[2].length + 1 });
    } else {
      const last = items[items.length - 1];
      const indent = /^\s*/.exec(line)[0].length;
      last.inner.push(line.slice(Math.min(indent, last.strip)));
    }
  }
  items.forEach((item, index) => {
    const latest = open && index === items.length - 1;
    const task = /^\[([ xX])\]\s+(.*)$/.exec(item.text);
    const node = el('li', {}, ...(task ? [task[1] === ' ' ? '☐ ' : '☑ ', ...inline(task[2], latest)]
      : inline(item.text, latest)));
    if (item.inner.some((line) => line.trim() !== '') && depth < 12) {
      node.append(...build(item.inner.join('\n'), latest, depth + 1));
    }
    list.append(node);
  });
  return list;
}

function tableBlock(lines, open) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());
  const align = cells(lines[1]).map((cell) => (/^:-+:$/.test(cell) ? 'center' : /-:$/.test(cell) ? 'right' : ''));
  const row = (line, tag) => el('tr', {}, ...cells(line).map((cell, i) =>
    el(tag, align[i] ? { class: `to-${align[i]}` } : {}, ...inline(cell, open))));
  return el('div', { class: 'table' }, el('table', {},
    el('thead', {}, row(lines[0], 'th')), el('tbody', {}, ...lines.slice(2).map((line) => row(line, 'td')))));
}

function node(block, open, depth) {
  const { kind, lines } = block;
  if (kind === 'code') return codeBlock(block);
  if (kind === 'heading') {
    const [, marks, text] = kHeading.exec(lines[0]);
    // The page's own headings come first: a reply starts at level 3.
    return el(`h${Math.min(6, marks.length + 2)}`, {}, ...inline(text, open));
  }
  if (kind === 'rule') return el('hr');
  if (kind === 'quote') {
    const inner = lines.map((line) => line.replace(kQuote, '')).join('\n');
    return el('blockquote', {}, ...(depth < 12 ? build(inner, open, depth + 1) : [inner]));
  }
  if (kind === 'list') return listBlock(lines, open, depth);
  if (kind === 'table') return tableBlock(lines, open);
  const paragraph = el('p');
  lines.forEach((line, i) => {
    if (i > 0) paragraph.append(/ {2,}$|\\$/.test(lines[i - 1]) ? el('br') : ' ');
    paragraph.append(...inline(line.trim().replace(/\\$/, ''), open && i === lines.length - 1));
  });
  return paragraph;
}

function build(text, open, depth = 0) {
  const list = blocks(text);
  return list.map((block, i) => node(block, open && i === list.length - 1, depth));
}

// Shows `text` in `root`, reusing the blocks that are as before. `open`: more text will come.
export function render(root, text, open) {
  const list = blocks(text);
  const old = root.blockSources || [];
  const sources = list.map((block, i) => (open && i === list.length - 1 ? '\u0001' : '') + block.source);
  let same = 0;
  while (same < sources.length && same < old.length && sources[same] === old[same]) ++same;
  while (root.childNodes.length > same) root.lastChild.remove();
  for (let i = same; i < list.length; ++i) root.append(node(list[i], open && i === list.length - 1, 0));
  root.blockSources = sources;
}
