# SPDX-License-Identifier: Apache-2.0
#
# One interface target, `paratope_options`, that every target of ours links: the include root,
# the warnings (errors in every preset) and the sanitizers that were asked for.
add_library(paratope_options INTERFACE)
get_filename_component(PARATOPE_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
target_include_directories(paratope_options INTERFACE ${PARATOPE_ROOT} ${CMAKE_BINARY_DIR})
target_compile_options(paratope_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow=local -Wnon-virtual-dtor -Werror>)
if(PARATOPE_SANITIZE)
  target_compile_options(paratope_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PARATOPE_SANITIZE} -fno-omit-frame-pointer -g>)
  target_link_options(paratope_options INTERFACE -fsanitize=${PARATOPE_SANITIZE})
endif()

# paratope_library(NAME SOURCES… LINK …): a static library of ours with the common options.
function(paratope_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC paratope_options ${arg_LINK})
endfunction()

# paratope_unit_test(NAME SOURCES… LINK …): a GoogleTest binary, every case known to ctest.
function(paratope_unit_test name)
  if(NOT PARATOPE_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE paratope_options ${arg_LINK} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE PARATOPE_SOURCE_DIR="${PARATOPE_ROOT}")
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120 LABELS unit)
endfunction()
