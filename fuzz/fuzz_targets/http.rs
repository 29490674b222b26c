//! See `diorite_admin::fuzzing::http`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_admin::fuzzing::http(input));
