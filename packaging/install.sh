#!/bin/sh
# Installs what was built, or removes it: packaging/install.sh [install|uninstall]
# PREFIX and DESTDIR as usual. Nothing is written outside of PREFIX: settings in /etc and sessions in /var belong
# to the operator. BALLAST is the program, BALLAST_MODELS_DIR where its default model may be.
set -eu
action=${1:-install}
prefix=${PREFIX:-/usr/local}
program=${BALLAST:-build/release/ballast}
model=${BALLAST_MODELS_DIR:-models}/SmolLM2-135M-Instruct.Q4_1.gguf
made=${BALLAST_MADE_DIR:-build/packaging}
python=${PYTHON:-python3}

case $action in install | uninstall) ;; *) echo "install.sh: expected install or uninstall, found $action" >&2; exit 2 ;; esac
case $prefix in /*) ;; *) prefix=$(pwd)/$prefix ;; esac # the unit needs a whole path
umask 022

# Mode, source, and destination below PREFIX: one list, so that uninstall cannot forget a file.
each_file() {
  "$1" 755 "$program" bin/ballast
  "$1" 644 LICENSE share/doc/ballast/LICENSE
  "$1" 644 packaging/ballast.env share/doc/ballast/ballast.env
  "$1" 644 docs/grafana.json share/doc/ballast/grafana.json
  "$1" 644 "$made/ballast.1" share/man/man1/ballast.1
  "$1" 644 "$made/ballast.bash" share/bash-completion/completions/ballast
  "$1" 644 "$made/_ballast" share/zsh/site-functions/_ballast
  "$1" 644 "$made/ballast.fish" share/fish/vendor_completions.d/ballast.fish
  "$1" 644 "$made/ballast.service" lib/systemd/system/ballast.service
  # The program looks for its default model there.
  "$1" 644 "$model" share/ballast/models/SmolLM2-135M-Instruct.Q4_1.gguf
}

put() {
  if [ "$2" = "$model" ] && [ ! -e "$model" ]; then
    echo "install: no default model at $model; -m names one, make models-default fetches it" >&2
    return
  fi
  install -D -m "$1" "$2" "${DESTDIR:-}$prefix/$3"
}

drop() { rm -f "${DESTDIR:-}$prefix/$3"; }

if [ "$action" = install ]; then
  mkdir -p "$made"
  "$python" -B tools/make_man.py "$program" >"$made/ballast.1"
  "$python" -B tools/make_completions.py "$program" "$made"
  # In a replacement, sed means something by these characters.
  place=$(printf '%s' "$prefix" | sed 's/[&|\\]/\\&/g')
  sed "s|/usr/local/|$place/|" packaging/ballast.service >"$made/ballast.service"
  each_file put
else
  each_file drop
  rmdir "${DESTDIR:-}$prefix/share/doc/ballast" "${DESTDIR:-}$prefix/share/ballast/models" \
    "${DESTDIR:-}$prefix/share/ballast" 2>/dev/null || true
fi
