//! The keys under which a tablet keeps its own state, and the bounds of its data.

/// The key of the applied state; sorts before all data.
pub(crate) const META_KEY: &[u8] = &[0];

/// The key of a tablet's members, written with the applied state of the entry that changed them. Like [`META_KEY`] it
/// is shorter than any key of the data; scans skip it.
pub const MEMBERS_KEY: &[u8] = &[0, 1];

/// The key of the record that the tablet was split, or was made by a split. Like [`META_KEY`] it is shorter than any
/// key of the data; scans skip it.
pub const SPLIT_KEY: &[u8] = &[0, 2];

/// The key of the record of a tablet's progress in taking over the rows of another one. Like [`META_KEY`] it is shorter
/// than any key of the data; scans skip it.
///
/// # Panics
/// If there have been more than 2^40 tablets.
pub fn absorbed_key(tablet: u64) -> [u8; 7] {
    let [high @ .., a, b, c, d, e] = tablet.to_be_bytes();
    assert!(high == [0; 3], "tablets are numbered from one, and no cluster has had so many");
    [0, 3, a, b, c, d, e]
}

/// The key of a piece of a row that a tablet takes over from another, kept until the row is complete. Like [`META_KEY`]
/// it is shorter than any key of the data; scans skip it.
pub fn staged_key(piece: u32) -> [u8; 6] {
    let [a, b, c, d] = piece.to_be_bytes();
    [0, 4, a, b, c, d]
}

/// Sorts after all keys of a tablet's own state; only rows with the smallest tokens sort before it.
pub const AFTER_KEYS_ABOUT_TABLETS: &[u8] = &[0, 5];

/// Sorts after all data: no key continues with this byte after its token.
pub const AFTER_ALL_KEYS: &[u8] = &[0xFF; 9];

/// Whether the key belongs to the tablet's own state, as opposed to the data.
pub(crate) fn is_about_the_tablet(key: &[u8]) -> bool {
    [META_KEY, MEMBERS_KEY, SPLIT_KEY].contains(&key) || matches!(key, [0, 3, _, _, _, _, _] | [0, 4, _, _, _, _])
}
