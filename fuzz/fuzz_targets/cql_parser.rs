//! See `diorite_cql::fuzzing::parser`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_cql::fuzzing::parser(input));
