//! Size limits that more than one crate must agree on. Sizes in bytes.

/// The largest partition key or clustering key, in its CQL wire form (Cassandra's limit).
pub const MAX_KEY_BYTES: usize = 65_535;

/// The largest CQL request body that a node reads. Larger frames are refused before they are buffered.
pub const MAX_FRAME_BYTES: usize = 32 << 20;

/// The most memory that one request may hold, from its text to its answer.
pub const MAX_REQUEST_MEMORY_BYTES: usize = 256 << 20;

/// The largest single write command (one statement or one batch on one tablet).
pub const MAX_MUTATION_BYTES: usize = 16 << 20;

/// The most tablets one table may be created with.
pub const MAX_TABLETS_PER_TABLE: u32 = 10_000;

/// Collections: the most elements of one literal or bound value.
pub const MAX_COLLECTION_ELEMENTS: usize = 65_535;

// Values, and what is done with them.

/// The largest `varint` or `decimal` that a client sends or an operation gives, in its CQL wire form: turning one into digits, multiplying
/// and dividing take time that grows faster than the length.
pub const MAX_NUMBER_BYTES: usize = 4_096;

/// The most digits of a `varint` or `decimal` that is given as text; as many fit into [`MAX_NUMBER_BYTES`].
pub const MAX_NUMBER_DIGITS: usize = 9_800;

/// What the edits of lists and documents in one write (one statement or one batch on one tablet) may come to when they are applied: a few
/// bytes can remove every element of a list, again and again.
pub const MAX_EDIT_BYTES: usize = 64 << 20;
