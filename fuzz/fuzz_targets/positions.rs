//! See `diorite_query::fuzzing::positions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_query::fuzzing::positions(input));
