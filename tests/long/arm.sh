#!/bin/sh
# The kernels on Arm: cross-compiled for aarch64 and run under qemu-user, against the same scalar definitions.
# Highway for arm64 comes from Debian as a package that is unpacked, not installed: the system keeps one architecture.
set -eu
cd "$(dirname "$0")/../.."
sh tools/setup.sh arm
out=$PWD/build/arm
apt=$out/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$out/sysroot" "$out/obj" "$out/roots"
if [ ! -e "$out/sysroot/usr/include/hwy/highway.h" ]; then
  apt_arm() {
    (cd "$apt" && apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$apt/lists" \
      -o Dir::Cache="$apt/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User="$(id -un)" "$@")
  }
  apt_arm update
  apt_arm download libhwy-dev libhwy1
  for package in "$apt"/*.deb; do dpkg -x "$package" "$out/sysroot"; done
fi
for layer in base tensor kernels; do ln -sfn "$PWD/src/$layer" "$out/roots/$layer"; done
cat >"$out/build.ninja" <<END
cxx = aarch64-linux-gnu-g++
flags = -std=c++20 -O2 -Wall -Wextra -Wshadow -Werror -I$out/roots -I$PWD/tests -isystem $out/sysroot/usr/include \$
  "-DHWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)" -DBALLAST_TEST_DATA="\"$PWD/tests\"" -DBALLAST_MODELS_DIR="\"$PWD/models\""
rule cxx
  command = \$cxx \$flags \$more -MMD -MF \$out.d -c \$in -o \$out
  depfile = \$out.d
  deps = gcc
rule link
  command = \$cxx -o \$out \$in -L$out/sysroot/usr/lib/aarch64-linux-gnu -lhwy -lpthread
END
objects=""
compile() { # source, further flags
  object=$out/obj/$(echo "$1" | tr / _).o
  printf 'build %s: cxx %s\n  more = %s\n' "$object" "$1" "$2" >>"$out/build.ninja"
  objects="$objects $object"
}
for source in src/base/*.cc src/tensor/*.cc src/kernels/*.cc tests/kernels/*_test.cc; do compile "$PWD/$source" ""; done
for source in gtest-all.cc gtest_main.cc; do
  compile "/usr/src/googletest/googletest/src/$source" "-w -I/usr/src/googletest/googletest"
done
echo "build $out/kernels_tests: link$objects" >>"$out/build.ninja"
ninja --quiet -f "$out/build.ninja"
exec qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$out/sysroot/usr/lib/aarch64-linux-gnu" "$out/kernels_tests" "$@"
