//! Keys of a tablet that are not of its data: what it keeps about itself, and the bounds of the data.

/// Where the applied state is kept; sorts before all data.
pub(crate) const META_KEY: &[u8] = &[0];

/// Where a tablet's members are kept, written with the applied state of the entry that changed them. Like [`META_KEY`] shorter than any key
/// of the data; scans do not show it.
pub const MEMBERS_KEY: &[u8] = &[0, 1];

/// Where a tablet says that it was split, or that it comes from one that was. Like [`META_KEY`] shorter than any key of the data; scans do not show it.
pub const SPLIT_KEY: &[u8] = &[0, 2];

/// Where a tablet says how far it has taken in another one. Like [`META_KEY`] shorter than any key of the data; scans do not show it.
///
/// # Panics
/// If there have been more than 2^40 tablets.
pub fn absorbed_key(tablet: u64) -> [u8; 7] {
    let [high @ .., a, b, c, d, e] = tablet.to_be_bytes();
    assert!(high == [0; 3], "tablets are numbered from one, and no cluster has had so many");
    [0, 3, a, b, c, d, e]
}

/// Where a tablet keeps a piece of a row that it takes in from another tablet, until the row is whole. Like [`META_KEY`] shorter than any key of the data; scans do
/// not show it.
pub fn staged_key(piece: u32) -> [u8; 6] {
    let [a, b, c, d] = piece.to_be_bytes();
    [0, 4, a, b, c, d]
}

/// Sorts after everything that a tablet keeps about itself; only rows of the least tokens come before it.
pub const AFTER_KEYS_ABOUT_TABLETS: &[u8] = &[0, 5];

/// Sorts after all data: no key goes on with this byte after its token.
pub const AFTER_ALL_KEYS: &[u8] = &[0xFF; 9];

/// Whether the key is not one of the data.
pub(crate) fn is_about_the_tablet(key: &[u8]) -> bool {
    [META_KEY, MEMBERS_KEY, SPLIT_KEY].contains(&key) || matches!(key, [0, 3, _, _, _, _, _] | [0, 4, _, _, _, _])
}
