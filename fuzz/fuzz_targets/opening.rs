//! See `diorite_rpc::fuzzing::opening`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_rpc::fuzzing::opening(input));
