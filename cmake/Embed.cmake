# Files become bytes of the binary: ballast_embed(<target> <name> FILES ...) gives the target a source file that
# defines `std::span<const EmbeddedFile> ballast::server::<name>()` (src/server/assets.h). Run again at build
# time, with the same file as a script, whenever a file changes.
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "// Written by cmake/Embed.cmake.\n#include \"server/assets.h\"\n\nnamespace ballast::server {\nnamespace {\n")
  set(table "")
  set(i 0)
  foreach(file ${FILES})
    get_filename_component(base ${file} NAME)
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n"
           bytes "${bytes}")
    string(APPEND text "constexpr unsigned char kFile${i}[] = {\n${bytes}0};\n")
    string(APPEND table "    {\"${base}\", {reinterpret_cast<const char*>(kFile${i}), sizeof(kFile${i}) - 1}},\n")
    math(EXPR i "${i} + 1")
  endforeach()
  if(table)
    string(APPEND text "const EmbeddedFile kFiles[] = {\n${table}};\n}  // namespace\n\n"
           "std::span<const EmbeddedFile> ${NAME}() { return kFiles; }\n")
  else()
    string(APPEND text "}  // namespace\n\nstd::span<const EmbeddedFile> ${NAME}() { return {}; }\n")
  endif()
  file(WRITE ${OUT} "${text}}  // namespace ballast::server\n")
  return()
endif()

function(ballast_embed target name)
  cmake_parse_arguments(ARG "" "" "FILES" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/embed/${name}.cc)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -D OUT=${out} -D NAME=${name} "-DFILES=${ARG_FILES}" -P ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake
    DEPENDS ${ARG_FILES} ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
