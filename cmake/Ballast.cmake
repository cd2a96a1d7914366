# Helpers shared by every CMakeLists.txt: warnings, sanitizers, and the one-way layers.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(spdlog REQUIRED)
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

add_library(ballast_options INTERFACE)
target_compile_options(ballast_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of impossible overlaps in `"literal" + std::string` (its bug 105651).
  target_compile_options(ballast_options INTERFACE -Wno-restrict)
endif()
if(BALLAST_WERROR)
  target_compile_options(ballast_options INTERFACE -Werror)
endif()
if(BALLAST_SANITIZE)
  target_compile_options(ballast_options INTERFACE -fsanitize=${BALLAST_SANITIZE} -fno-sanitize-recover=all -O1 -g1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 loses sight of Asio's own operator new for coroutine frames when instrumenting.
    target_compile_options(ballast_options INTERFACE -Wno-mismatched-new-delete)
  endif()
  target_link_options(ballast_options INTERFACE -fsanitize=${BALLAST_SANITIZE})
endif()

# The kernels compile once per instruction set; these are left out.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # Vectors of unknown length cannot be members of tiles; Neon can (tests/long/arm.sh).
  set(BALLAST_NO_KERNELS_FOR HWY_SVE HWY_SVE2 HWY_SVE_256 HWY_SVE2_128)
elseif(BALLAST_SANITIZE)
  set(BALLAST_NO_KERNELS_FOR HWY_SSSE3 HWY_SSE4 HWY_AVX3) # slow to compile: the best, AVX2 and the portable one suffice
else()
  set(BALLAST_NO_KERNELS_FOR HWY_SSSE3) # without SSE4 it ended in 2007; such a CPU takes the portable path
endif()
list(JOIN BALLAST_NO_KERNELS_FOR "|" BALLAST_NO_KERNELS_FOR)

# Each layer gets an include root of its own that holds nothing but that layer, so that
# `#include "engine/stream.h"` from src/cache/ does not compile.
set(BALLAST_ROOTS ${CMAKE_BINARY_DIR}/roots)
function(ballast_root layer)
  file(MAKE_DIRECTORY ${BALLAST_ROOTS}/${layer})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${layer} ${BALLAST_ROOTS}/${layer}/${layer} SYMBOLIC)
endfunction()

function(ballast_layer layer)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  ballast_root(${layer})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${layer}/*.cc)
  if(sources)
    set(scope PUBLIC)
    add_library(ballast_${layer} STATIC ${sources})
    target_link_libraries(ballast_${layer} PRIVATE ballast_options ${ARG_LIBS})
  else()
    set(scope INTERFACE)
    add_library(ballast_${layer} INTERFACE)
  endif()
  target_include_directories(ballast_${layer} ${scope} ${BALLAST_ROOTS}/${layer})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(ballast_${layer} ${scope} ballast_${dep})
  endforeach()
endfunction()

# Large headers of libraries, read once per target instead of once per file: a third of a build from scratch. A compiler
# cache cannot use them, and is quicker still.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(precompile OFF)
else()
  set(precompile ON)
endif()
option(BALLAST_PRECOMPILE "Precompile large headers" ${precompile})
function(ballast_precompile target)
  if(BALLAST_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
