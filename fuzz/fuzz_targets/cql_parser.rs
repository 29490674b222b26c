//! Parses arbitrary text as CQL.
//!
//! Holds: no input makes the parser panic or overflow the stack; whatever it accepts comes back the same from its own canonical
//! text, and that text is a fixed point of the formatter. `language/golden` in the `cql` crate holds texts to start from.

#![no_main]

use diorite_cql::language::{format, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(parsed) = parse(text) else { return };
    let canonical = format::format(&parsed);
    let again = parse(&canonical).unwrap_or_else(|error| panic!("{error} in {canonical}"));
    assert_eq!(again, parsed, "{canonical}");
    assert_eq!(format::format(&again), canonical);
});
