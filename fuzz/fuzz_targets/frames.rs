//! See `diorite_cql::fuzzing::frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_cql::fuzzing::frames(input));
