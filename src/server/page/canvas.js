// What every canvas of the page shares: crisp pixels, the palette of the theme, drawing once per frame.

let colours = null;
addEventListener('ballast-theme', () => { colours = null; });

// The style sheet owns the colours; canvases read them once per theme.
export function palette() {
  if (colours) return colours;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  colours = {};
  for (const name of ['ink', 'muted', 'faint', 'rule', 'panel', 'water', 'deep', 'shoal', 'brass', 'coral', 'empty',
    'cold', 'warm', 'hot', 'mono', 'sans']) {
    colours[name] = read(name);
  }
  return colours;
}

export function rgb(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}
export function mix(a, b, share) {
  const from = rgb(a);
  const to = rgb(b);
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * share)).join(',')})`;
}

// Sizes the bitmap to the element and the screen; draws in CSS pixels from there on.
export function fit(canvas) {
  const ratio = devicePixelRatio || 1;
  const w = canvas.clientWidth;
  const h = canvas.clientHeight;
  const pw = Math.round(w * ratio);
  const ph = Math.round(h * ratio);
  if (canvas.width !== pw) canvas.width = pw;
  if (canvas.height !== ph) canvas.height = ph;
  const ctx = canvas.getContext('2d');
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, w, h);
  return { ctx, w, h };
}

// request() any number of times: draw(now) runs once, in the next frame; never in between.
export class Painter {
  constructor(draw) {
    this.draw = draw;
    this.frame = 0;
  }
  request() {
    if (this.frame) return;
    this.frame = requestAnimationFrame((now) => {
      this.frame = 0;
      this.draw(now);
    });
  }
}
