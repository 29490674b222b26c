//! See `diorite_model::fuzzing::values`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_model::fuzzing::values(input));
