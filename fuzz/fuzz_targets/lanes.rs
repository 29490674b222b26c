//! See `diorite_replica::fuzzing::lanes`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_replica::fuzzing::lanes(input));
