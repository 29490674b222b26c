//! See `diorite_model::fuzzing::rows`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_model::fuzzing::rows(input));
