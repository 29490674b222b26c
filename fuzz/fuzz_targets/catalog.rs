//! See `diorite_cluster::fuzzing::catalog`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_cluster::fuzzing::catalog(input));
