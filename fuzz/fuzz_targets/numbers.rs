//! See `diorite_query::fuzzing::numbers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_query::fuzzing::numbers(input));
