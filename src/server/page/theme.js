// Runs before the first paint, so that a dark page never flashes white. The choice is auto, light or dark.
(function () {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  function choice() {
    try { return localStorage.getItem('ballast.theme') || 'auto'; } catch { return 'auto'; }
  }
  function apply() {
    const wanted = choice();
    const shown = wanted === 'auto' ? (dark.matches ? 'dark' : 'light') : wanted;
    document.documentElement.dataset.theme = shown;
    document.documentElement.style.colorScheme = shown;
    dispatchEvent(new CustomEvent('ballast-theme', { detail: { wanted, shown } }));
  }
  dark.addEventListener('change', apply);
  globalThis.ballastTheme = {
    choice,
    set(wanted) {
      try { localStorage.setItem('ballast.theme', wanted); } catch { /* private mode: lasts until reload */ }
      apply();
    },
  };
  apply();
})();
