# The GPU tests without a GPU: their kernels' PTX is interpreted. A quick choice of them is run here, all by ./dev kernels.
set(RINGSIDE_HAS_CUDA_TESTS ON CACHE INTERNAL "ringside_optimized_test runs, over the interpreter")
file(GLOB_RECURSE interpreter_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
set(interpreter_tests ${interpreter_sources})
list(FILTER interpreter_sources EXCLUDE REGEX "_test\\.cpp$")
list(FILTER interpreter_tests INCLUDE REGEX "_test\\.cpp$")

add_library(ringside_interpreter OBJECT ${interpreter_sources})
if(RINGSIDE_PRECOMPILED_HEADERS)  # an instrument of tests, compiled by folder as they are
  ringside_compile_by_folder(ringside_interpreter)
  set_target_properties(ringside_interpreter PROPERTIES UNITY_BUILD ON)
endif()
set_target_properties(ringside_interpreter PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
target_include_directories(ringside_interpreter PRIVATE "${PROJECT_SOURCE_DIR}")
target_include_directories(ringside_interpreter SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_features(ringside_interpreter PRIVATE cxx_std_20)
target_link_libraries(ringside_interpreter PRIVATE ringside_options)
ringside_detect_cpu(interpreter_march)  # it runs where it was built
target_compile_options(ringside_interpreter PRIVATE $<$<BOOL:${interpreter_march}>:-march=${interpreter_march}>)

# Before the library of NVIDIA's runtime, of which nothing is taken.
target_sources(ringside_optimized_test PRIVATE $<TARGET_OBJECTS:ringside_interpreter> ${interpreter_tests})
set_source_files_properties(${interpreter_tests} PROPERTIES UNITY_GROUP interpreter)
target_compile_definitions(ringside_optimized_test PRIVATE RINGSIDE_INTERPRETED)

# All of these run at once here, in order, so nobody waits for a stream; of the long ones some seeds are enough.
set(left_out DeviceTables.DoNotWaitForTheDefaultStream DeviceTables.AreThereForEveryStreamOnceUploaded
    Boxes.ReachRowsBehindFourGigabytes)
foreach(seed IN ITEMS 1 2 3 4 5 6 7 9 10 11)
  list(APPEND left_out "*AgreesWithTheCpu/${seed}")
endforeach()
list(APPEND left_out "Float32/*/8" "Float16/*/8" "BFloat16/*/0")
# Kernels of the backward pass are templates of the type: each head dimension with one of the two.
foreach(kernel IN ITEMS 64_64_float16 128_128_float16 192_128_bfloat16 192_192_float16 256_256_bfloat16)
  list(APPEND left_out "*HopperBackward.*/${kernel}")
endforeach()
# Ranks: of each type, in one process and in two, one of three seeds; of each number of processes all three.
foreach(number IN ITEMS 1 2 3 5 6 7 9 10 13 14 15 17)
  list(APPEND left_out "*AgreeWithTheCpu/${number}")
endforeach()
# What one test allocates on the device the next one has: else the system clears its pages anew each time.
ringside_run_tests(ringside_optimized_test LEFT_OUT ${left_out} ENVIRONMENT
                   RINGSIDE_FEW_CASES=1 MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296)
