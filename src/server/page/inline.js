// Inline Markdown -> DOM nodes. The text of a model is untrusted: it becomes text nodes and a few known
// elements, links go only to http, https and mailto, and pictures are shown as links (no outside requests).

import { el } from './dom.js';

const kSafe = /^(https?:\/\/|mailto:)/i;
// One alternative per construct; each is bounded or excludes its own delimiter, so matching stays linear.
const kToken = new RegExp([
  '\\\\([\\\\`*_{}\\[\\]()#+.!~|<>-])',              // 1: escaped character
  '(`+)',                                            // 2: code span
  '(!?)\\[([^\\[\\]\\n]{0,1000})\\]\\(([^()\\s]{1,2000})(?:\\s+"[^"\\n]{0,300}")?\\)',  // 3-5: link or picture
  '<?(https?:\\/\\/[^\\s<>"\'`]{1,2000})>?',         // 6: bare address
  '(\\*\\*\\*|\\*\\*|\\*|___|__|_|~~)',              // 7: emphasis
].join('|'), 'g');

function link(address, label) {
  const external = kSafe.test(address);
  if (!external) return document.createTextNode(label || address);
  return el('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow' }, label || address);
}

function wrap(mark, children) {
  if (mark === '~~') return el('del', {}, ...children);
  const strong = mark.length >= 2;
  const inner = mark.length === 3 ? [el('em', {}, ...children)] : children;
  return el(strong ? 'strong' : 'em', {}, ...inner);
}

const isWord = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);
const isSpace = (c) => c === undefined || /\s/.test(c);

// `open`: the text is still being written, so emphasis without an end counts until the end of the text.
export function inline(text, open = false) {
  const stack = [{ mark: '', nodes: [] }];
  const top = () => stack[stack.length - 1];
  const put = (node) => top().nodes.push(node);
  const unwind = (level) => {  // emphasis that was never closed is plain text, or emphasis so far
    while (stack.length > level) {
      const { mark, nodes } = stack.pop();
      if (open && nodes.length) put(wrap(mark, nodes));
      else top().nodes.push(mark, ...nodes);
    }
  };
  let at = 0;
  kToken.lastIndex = 0;
  for (let match; (match = kToken.exec(text));) {
    put(text.slice(at, match.index));
    at = kToken.lastIndex;
    const [whole, escaped, ticks, picture, label, target, bare, mark] = match;
    if (escaped !== undefined) {
      put(escaped);
    } else if (ticks !== undefined) {
      let end = text.indexOf(ticks, at);
      while (end >= 0 && text[end + ticks.length] === '`') {  // a longer run does not close it
        while (text[end] === '`') ++end;
        end = text.indexOf(ticks, end);
      }
      if (end < 0 && !open) { put(whole); continue; }
      const code = end < 0 ? text.slice(at) : text.slice(at, end);
      put(el('code', {}, code.trim() || code));
      at = end < 0 ? text.length : end + ticks.length;
      kToken.lastIndex = at;
    } else if (target !== undefined) {
      put(link(target, label || (picture ? 'picture' : target)));
    } else if (bare !== undefined) {
      const trimmed = bare.replace(/[.,;:!?)\]]+$/, '');
      put(link(trimmed, trimmed));
      put(bare.slice(trimmed.length));
    } else {
      emphasis(mark, text, match.index, at);
    }
  }
  put(text.slice(at));
  unwind(1);
  return stack[0].nodes.filter((node) => node !== '');

  function emphasis(mark, source, from, to) {
    const before = source[from - 1];
    const after = source[to];
    const inWord = mark[0] === '_' && isWord(before) && isWord(after);
    const level = stack.findLastIndex((entry) => entry.mark === mark);
    if (level > 0 && !isSpace(before) && !inWord) {
      unwind(level + 1);
      const { nodes } = stack.pop();
      put(wrap(mark, nodes));
    } else if (!isSpace(after) && !inWord && stack.length < 20) {
      stack.push({ mark, nodes: [] });
    } else {
      put(mark);
    }
  }
}
