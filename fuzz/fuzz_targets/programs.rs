//! See `diorite_query::fuzzing::programs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_query::fuzzing::programs(input));
