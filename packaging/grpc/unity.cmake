# Unity builds of gRPC's two large targets; see toolchain.cmake.

function(build_in_batches)
  set_target_properties(grpc_unsecure gpr PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # Names that are local to these files collide with those of their neighbours.
  get_target_property(alone grpc_unsecure SOURCES)
  list(FILTER alone INCLUDE REGEX "upb-generated|upbdefs-generated|/ev_[a-z0-9_]*\.cc|alts_credentials_server_options")
  set_source_files_properties(
    ${alone}
    src/core/tsi/local_transport_security.cc
    src/core/ext/transport/chttp2/transport/bin_encoder.cc
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL build_in_batches)
