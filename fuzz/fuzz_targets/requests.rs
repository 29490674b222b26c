//! See `diorite_node::fuzzing::lanes`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| diorite_node::fuzzing::lanes(input));
