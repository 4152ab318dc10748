# CMake's toolchain for gRPC's C++: the compilers that cargo-zigbuild made, and unity builds of gRPC's two large targets.
# Eight files compiled as one read their common headers once: with that the first build takes a third of the time.
# Used by packaging/cargo; cmake reads it again for every probe of the compiler, so it may not depend on the state of a build.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER "$ENV{CC_x86_64_unknown_linux_musl}")
set(CMAKE_CXX_COMPILER "$ENV{CXX_x86_64_unknown_linux_musl}")
set(CMAKE_AR "$ENV{AR_x86_64_unknown_linux_musl}")
set(CMAKE_RANLIB "$ENV{RANLIB_x86_64_unknown_linux_musl}")
# zig's linker knows no option to write what it depended on.
set(CMAKE_C_LINKER_DEPFILE_SUPPORTED FALSE)
set(CMAKE_CXX_LINKER_DEPFILE_SUPPORTED FALSE)

# Read when gRPC's own project() is reached, where its targets do not exist yet: what it says is deferred to the end.
set(CMAKE_PROJECT_grpc_INCLUDE "${CMAKE_CURRENT_LIST_DIR}/unity.cmake")
