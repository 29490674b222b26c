//! Evaluated writes: programs that every replica runs when it applies them, because their effect depends on stored
//! data.
//!
//! A program holds conditions and operations. If every condition holds, all operations take effect, else none does; the
//! reply says which, and shows the rows that were read. `docs/formats/programs.md` is the layout.
//!
//! Always true: a program carries everything it needs (ids, types, keys, values), so that running it needs no schema;
//! it is run with the timestamp of its log entry as the current time, so that all replicas agree; what it would do can
//! be asked for without doing it ([`evaluate()`]). Left out: programs over several tablets.

mod after;
mod codec;
mod definition;
mod digest;
mod document;
mod evaluate;
mod growth;
mod outcome;
mod overlay;
mod plain;
mod reply;
mod shown;
mod stored;
mod stored_value;
mod targets;
mod test_value;
#[cfg(test)]
mod tests;
mod turns;
mod types;
mod unchanged;
mod wire;

pub use after::After;
pub(crate) use codec::{put_path, read_path};
pub use definition::{
    ColumnTest, KnownView, ListEdit, Maintained, PARTITION_DELETIONS, PathStep, Program, ProgramOperation,
    ProgramReply, RowCondition, RowTest, Seen, SeenRow, TestTree, TestedPart, Turn, Unchanged, ValueTest,
};
pub use digest::{Digest, RowsDigest};
pub use evaluate::TabletEvaluator;
pub(crate) use growth::is_unmaintained;
pub use outcome::{Change, Outcome, evaluate};
pub(crate) use stored::DAMAGED;
pub(crate) use targets::{deleted, of as targets_of};
pub use types::{put_type, read_type};
pub(crate) use wire::read_list;
