# Sources that name the namespace RINGSIDE_CPU_LEVEL, compiled once for each level of x86-64 and chosen from at run
# time (cpu_kernels.h). An inline function compiled for AVX-512 must never be the copy that the linker keeps for
# everybody: the objects of a wider level are joined into one, whose only global symbol is the level's table, and whose
# code lies in a section of its own, ringside_v3 or ringside_v4, where objdump finds it also after strip.

# What turns objects into one such object: flags for the compiler as linker, flags for objcopy.
function(ringside_cpu_level_tools level link_flags objcopy_flags)
  set(script "${PROJECT_BINARY_DIR}/cpu_levels/${level}.ld")
  file(CONFIGURE OUTPUT "${script}" CONTENT [[
SECTIONS {
  ringside_@level@ : { *(.text .text.*) }
  .init_array : { *(.init_array .init_array.* .ctors .ctors.*) }
}
ASSERT(SIZEOF(.init_array) == 0, "code of level @level@ would run when the library is loaded")
]] @ONLY)
  set(${link_flags} -r -nostdlib -Wl,--force-group-allocation "-Wl,-T,${script}" PARENT_SCOPE)
  set(${objcopy_flags} "--keep-global-symbol=ringside_cpu_kernels_${level}" PARENT_SCOPE)
endfunction()

# Whether compiler, linker and objcopy can do it with the flags given; says what they cannot.
function(ringside_can_dispatch result)
  set(${result} OFF PARENT_SCOPE)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SIZEOF_VOID_P EQUAL 8 OR NOT CMAKE_OBJCOPY OR
     NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    message(STATUS "CPU levels: one, because several need Linux on x86-64 and objcopy")
    return()
  endif()
  set(probe "${PROJECT_BINARY_DIR}/cpu_levels/probe")
  file(WRITE "${probe}.cpp" "#include <vector>\n"
       "extern \"C\" int ringside_cpu_kernels_v4(std::vector<int>& x) {\n"
       "  x.push_back(__builtin_cpu_supports(\"x86-64-v3\") + __builtin_cpu_supports(\"x86-64-v4\"));\n"
       "  return x[0];\n"
       "}\n")
  ringside_cpu_level_tools(v4 link_flags objcopy_flags)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
  set(compile "${CMAKE_CXX_COMPILER}" ${flags} -std=c++20 -march=x86-64-v4 -fno-lto)
  foreach(command IN ITEMS "${compile};-c;${probe}.cpp;-o;${probe}.o"
                           "${CMAKE_CXX_COMPILER};${link_flags};${probe}.o;-o;${probe}_joined.o"
                           "${CMAKE_OBJCOPY};${objcopy_flags};${probe}_joined.o;${probe}_sealed.o")
    execute_process(COMMAND ${command} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE error)
    if(failed)
      string(REGEX REPLACE "\n.*" "" error "${error}")
      message(STATUS "CPU levels: one, because another cannot be compiled here: ${error}")
      return()
    endif()
  endforeach()
  set(${result} ON PARENT_SCOPE)
endfunction()

# An object library of the sources at one level.
function(ringside_compile_level level)
  add_library(ringside_cpu_${level} OBJECT ${ARGN})
  set_target_properties(ringside_cpu_${level} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  target_compile_features(ringside_cpu_${level} PRIVATE cxx_std_20)
  target_include_directories(ringside_cpu_${level} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(ringside_cpu_${level} PRIVATE
    RINGSIDE_CPU_LEVEL=${level} RINGSIDE_CPU_KERNELS=ringside_cpu_kernels_${level} Eigen=ringside_eigen_${level})
  target_link_libraries(ringside_cpu_${level} PRIVATE Eigen3::Eigen ringside_options)
  if(RINGSIDE_PRECOMPILED_HEADERS)  # so is Eigen parsed once a level, not once a file
    set_target_properties(ringside_cpu_${level} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()

# The same, wider than the rest of the library: one sealed object, named in `result`.
function(ringside_seal_level level result)
  ringside_compile_level(${level} ${ARGN})
  target_compile_options(ringside_cpu_${level} PRIVATE -march=x86-64-${level} -fno-lto
    "$<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>")  # unique symbols are global whatever objcopy says
  set_target_properties(ringside_cpu_${level} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  ringside_cpu_level_tools(${level} link_flags objcopy_flags)
  set(sealed "${PROJECT_BINARY_DIR}/cpu_levels/ringside_cpu_${level}.o")
  add_custom_command(OUTPUT "${sealed}" VERBATIM COMMAND_EXPAND_LISTS
    COMMAND "${CMAKE_CXX_COMPILER}" ${link_flags} "$<TARGET_OBJECTS:ringside_cpu_${level}>" -o "${sealed}.joined"
    COMMAND "${CMAKE_OBJCOPY}" ${objcopy_flags} "${sealed}.joined" "${sealed}"
    DEPENDS ringside_cpu_${level} "$<TARGET_OBJECTS:ringside_cpu_${level}>"
    COMMENT "Sealing the code for x86-64-${level}")
  set_source_files_properties("${sealed}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${result} "${sealed}" PARENT_SCOPE)
endfunction()
