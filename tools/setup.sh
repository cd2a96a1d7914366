#!/bin/sh
# Installs the Debian packages of one purpose, if any is missing: tools/setup.sh [build|lint|fuzz|page|arm] ...
# Silent when nothing is to be done. Works as root, or through sudo.
set -eu

# make serve, make test: compiler, libraries, test runners, and pip (it knows which package index to use).
build="g++ cmake ninja-build make pkg-config libhwy-dev libcli11-dev libedit-dev libpcre2-dev libutf8proc-dev
  nlohmann-json3-dev libfmt-dev libboost-dev libspdlog-dev prometheus-cpp-dev libxxhash-dev libzstd-dev
  libjs-chart.js libbenchmark-dev libgtest-dev libgmock-dev python3 python3-pip python3-pytest ca-certificates"
lint="clang-format clang-tidy"
fuzz="clang libclang-rt-14-dev"
page="chromium chromium-driver"
arm="g++-aarch64-linux-gnu qemu-user"

wanted=""
for purpose in "${@:-build}"; do
  case $purpose in
    build) wanted="$wanted $build" ;;
    lint) wanted="$wanted $lint" ;;
    fuzz) wanted="$wanted $fuzz" ;;
    page) wanted="$wanted $page" ;;
    arm) wanted="$wanted $arm" ;;
    *) echo "setup: expected build, lint, fuzz, page or arm, found $purpose" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is no Debian; needed here are the equivalents of:" $wanted >&2
  exit 0 # the build names what it misses
fi

# One query for all: this runs before every build. ("all" packages are listed once per foreign architecture too.)
state=$(dpkg-query -W -f ' ${Package}=${db:Status-Status}\n' $wanted 2>/dev/null || true)
missing=""
for package in $wanted; do
  case $state in
    *" $package=installed"*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: these packages are missing, and there is no sudo: as root, run apt-get install$missing" >&2
    exit 1
  fi
  as_root="sudo"
fi
echo "setup: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }
# The package lists may be old or absent: fetch them only when the install does not go through without.
# (word splitting of $missing is meant)
if ! apt install -y --no-install-recommends $missing </dev/null >"$log" 2>&1; then
  if ! { apt update && apt install -y --no-install-recommends $missing; } </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    echo "setup: apt-get could not install$missing (its words are above)" >&2
    exit 1
  fi
fi
