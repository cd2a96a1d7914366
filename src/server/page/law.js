// The law of the cache as integers: docs/law.md, src/cache/layout.h.

// Where stream position t lives.
export function slotOf(t, sinks, context) {
  return t < sinks ? t : sinks + ((t - sinks) % (context - sinks));
}

// The position that the model gives to stream position t, numbered inside the cache.
export function cachePosition(t, sinks, start) {
  if (t < sinks) return t;
  return start > sinks ? sinks + (t - start) : t;
}

// The newest stream position fed so far that lives in the slot, or -1 if the slot was never written.
export function tokenIn(slot, sinks, context, position) {
  if (slot < sinks) return slot < position ? slot : -1;
  const newest = position - 1;
  if (newest < sinks) return -1;
  const window = context - sinks;
  const back = (((newest - sinks) % window) - (slot - sinks) + window) % window;
  const t = newest - back;
  return t >= sinks ? t : -1;
}

// What the model sees of a message at stream positions [begin, end): 'pinned' | 'gone' | 'partly' | 'seen'.
export function visibility(begin, end, sinks, start) {
  if (end === null || end === undefined) return 'seen';
  if (end <= sinks && sinks > 0) return 'pinned';
  if (end <= start) return 'gone';
  return begin < start && begin >= 0 && start > sinks ? 'partly' : 'seen';
}
