//! Which writes the replicas of a tablet can apply.
//!
//! Always true: what another node sends to be logged is checked here once, before it is proposed: its programs decode, and
//! the rows that it puts or merges are well formed ([`entry::may_be_written`]). A row that is not would be found later, by
//! whatever merges it with another: reads, flushes and compactions of all replicas. Left out: what this node has planned,
//! which was made by the encoder; calls of transactions, whose programs the leader looks at before it locks their rows
//! ([`diorite_base::mutation::Evaluator::targets`]); rows that a tablet takes over, which another one has stored, and which
//! are put as they are.

use diorite_base::limits::Exceeded;
use diorite_base::mutation::{Body, Mutation, MutationRef};
use diorite_base::program::{LoggedProgram, ProvenProgram, Target, Unprovable};
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_cluster::catalog::LevelledCommand;
use diorite_model::entry;
use diorite_query::index::{IndexStep, is_adoptable};
use diorite_query::program::{Program, ProgramOperation};
use diorite_replica::MergeStep;

/// The kind of replicas that evaluate writes to a tablet.
pub(super) fn target_of(tablet: TabletId) -> Target {
    if tablet.0 == GroupId::CATALOG.0 { Target::Catalog } else { Target::Rows }
}

/// A step of a merge, whose records these tablets can adopt.
struct AdoptableStep(MergeStep);

impl LoggedProgram for AdoptableStep {
    const TARGET: Target = MergeStep::TARGET;
    type Error = String;

    fn check(&self) -> Result<(), Exceeded> {
        self.0.check()
    }

    fn encode(&self) -> Vec<u8> {
        LoggedProgram::encode(&self.0)
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        let step = <MergeStep as LoggedProgram>::decode(bytes)?;
        let are_adoptable = step.records().all(|(key, value)| is_adoptable(key, value));
        match are_adoptable {
            true => Ok(Self(step)),
            false => Err("a record of a step of a merge is malformed".to_owned()),
        }
    }
}

/// A program that writes well-formed rows.
struct WellFormed(Program);

impl LoggedProgram for WellFormed {
    const TARGET: Target = Program::TARGET;
    type Error = &'static str;

    fn check(&self) -> Result<(), Exceeded> {
        LoggedProgram::check(&self.0)
    }

    fn encode(&self) -> Vec<u8> {
        LoggedProgram::encode(&self.0)
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        let program = <Program as LoggedProgram>::decode(bytes)?;
        let are_well_formed = program.operations.iter().all(ProgramOperation::is_well_formed);
        are_well_formed.then_some(Self(program)).ok_or("a row is malformed")
    }
}

/// Checks the rows of a write that has no program.
fn check_rows(mutation: &Mutation) -> Result<(), Unprovable> {
    let malformed = || Unprovable::Unreadable("a row is malformed".to_owned());
    let decoded = MutationRef::decode(mutation.as_bytes()).map_err(|_| malformed())?;
    let Body::Blind(operations) = decoded.body() else { return Ok(()) };
    for operation in operations {
        let operation = operation.map_err(|_| malformed())?;
        if !entry::may_be_written(operation.value, operation.is_unplaced) {
            return Err(malformed());
        }
    }
    Ok(())
}

/// Decodes a write from another node, if the tablet's replicas can apply it. A write that cannot be applied must not
/// reach the log: replicas would stop at it.
pub(super) fn checked(tablet: TabletId, bytes: &[u8]) -> Result<Mutation, KvError> {
    let target = target_of(tablet);
    let prove = |program: &[u8]| match target {
        Target::Catalog => ProvenProgram::read::<LevelledCommand>(program),
        Target::Rows => ProvenProgram::read::<AdoptableStep>(program)
            .or_else(|_| ProvenProgram::read::<IndexStep>(program))
            .or_else(|_| ProvenProgram::read::<WellFormed>(program)),
    };
    let mutation = Mutation::decode(bytes.to_vec(), prove)?;
    mutation.check_for(target)?;
    check_rows(&mutation)?;
    Ok(mutation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::limits::MAX_COLUMNS;
    use diorite_base::mutation::{Evaluator, LEAST_STAMPED_BYTES, OperationKind};
    use diorite_base::{Level, NodeId, TableId};
    use diorite_cluster::catalog::Command;
    use diorite_model::index::specification_key;
    use diorite_model::row::{RowWriter, UNSTAMPED, unplaced_list_path_append};
    use diorite_model::schema::{Column, ColumnKind, Table};
    use diorite_model::types::CqlType;
    use diorite_query::index::Specification;
    use diorite_query::program::{TabletEvaluator, Turn};
    use std::collections::BTreeMap;
    use uuid::Uuid;

    #[test]
    fn only_what_a_replica_can_apply_is_taken_from_another_node() {
        let tablet = TabletId(1_000);
        let taken = |mutation: &Mutation| checked(tablet, mutation.as_bytes()).is_ok();
        assert!(taken(&Mutation::blind(None)));
        let step = |step: MergeStep| step.mutation().expect("a small step");
        assert!(taken(&step(MergeStep::Close { tablet: TabletId(7), number: 1 })));
        let begin = step(MergeStep::Begin { from: tablet, number: 3, attempt: 7, range: (vec![1], vec![2]) });
        assert!(taken(&begin));
        let header = &begin.as_bytes()[..9];
        for program in [&b"neither a program nor a step"[..], &[]] {
            assert!(checked(tablet, &[header, program].concat()).is_err());
        }
        // A step with something behind it.
        let longer = [begin.as_bytes(), b"?"].concat();
        assert!(checked(tablet, &longer).is_err());
        // A program that only the catalog evaluates.
        let catalog = TabletId(GroupId::CATALOG.0);
        let command = Command::RemoveNode { node: NodeId(1), only_without_vote: false };
        let command = Mutation::evaluated(None, &command.proven_at(Level::FIRST).expect("a small command"));
        assert!(checked(catalog, command.as_bytes()).is_ok() && !taken(&command));
        assert!(checked(catalog, begin.as_bytes()).is_err());
        assert!(checked(catalog, Mutation::blind(None).as_bytes()).is_err());
    }

    #[test]
    fn a_program_that_replicas_would_stop_at_is_not_taken() {
        // A row without cells takes nine bytes.
        let row = |key: &[u8], value_bytes: usize, is_stamped: bool| ProgramOperation::Row {
            is_overwrite: true,
            is_stamped,
            is_unplaced: false,
            key: key.to_vec(),
            value: [0x40].into_iter().chain([0; 8]).take(value_bytes).collect(),
        };
        let header = Mutation::blind(None).as_bytes().to_vec();
        let taken = |program: Program| {
            let evaluated = [&[1][..], &header[1..], &program.encode()].concat();
            checked(TabletId(1_000), &evaluated).is_ok()
        };
        let of = |operation: ProgramOperation| Program { operations: vec![operation], ..Program::default() };
        let in_turns = |operation| Program { turns: Some(vec![Turn::Operation]), ..of(operation) };
        let key = [7u8; 12];
        assert!(taken(of(row(&key, 9, true))) && taken(of(row(&key, 9, false))));
        assert!(taken(in_turns(row(&key, 9, true))));
        assert!(!taken(of(row(&key, 8, true))) && !taken(in_turns(row(&key, 0, true))));
        assert!(!taken(of(row(&key, 8, false))), "no row");
        // What the tablet keeps of itself.
        assert!(!taken(of(row(&[0; 12], 9, true))) && !taken(of(row(&[0, 1], 9, true))));
        assert!(!taken(of(ProgramOperation::Delete { partition: vec![0; 9], range: None, explicit_us: None })));
    }

    /// A row with a cell and a list of two elements.
    fn packed() -> Vec<u8> {
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, UNSTAMPED);
        writer.cell(1, UNSTAMPED, None, b"value");
        writer.begin_complex(2, None);
        (0..2).for_each(|nth| writer.element(&unplaced_list_path_append(nth), UNSTAMPED, None, b"v"));
        writer.end_complex();
        packed
    }

    /// Each way in which a row reaches the log.
    fn takes(value: &[u8], is_unplaced: bool) -> [bool; 3] {
        let (tablet, key) = (TabletId(1_000), vec![7; 12]);
        let mut blind = Mutation::blind(None);
        blind.push_row(OperationKind::Merge, true, is_unplaced, &key, value);
        let (is_overwrite, value) = (false, value.to_vec());
        let row = ProgramOperation::Row { is_overwrite, is_stamped: true, is_unplaced, key, value };
        let program = Program { operations: vec![row], ..Program::default() };
        let evaluated = Mutation::evaluated(None, &ProvenProgram::new(&program).expect("a small program"));
        let is_locked = TabletEvaluator.targets(&program.encode(), &mut |_, _| {}).is_ok();
        [checked(tablet, blind.as_bytes()).is_ok(), checked(tablet, evaluated.as_bytes()).is_ok(), is_locked]
    }

    /// Replicas would store it, and stop when they merge it with another.
    #[test]
    fn a_row_that_is_malformed_is_not_taken() {
        let whole = packed();
        assert_eq!(takes(&whole, true), [true; 3]);
        let taken = (LEAST_STAMPED_BYTES..whole.len()).filter(|length| takes(&whole[..*length], false) != [false; 3]);
        // Nothing but the head of the row, and all of its first cell.
        assert_eq!(taken.collect::<Vec<_>>(), [9, 9 + 3 + 5]);
        let mut changed = whole.clone();
        changed[0] = 0;
        assert_eq!(takes(&changed, false), [false; 3], "neither a row nor a header");
        assert_eq!(takes(&[&whole[..], b"?"].concat(), false), [false; 3]);
    }

    #[test]
    fn a_list_that_may_lose_its_order_is_not_taken() {
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, UNSTAMPED);
        writer.begin_complex(2, None);
        writer.element(&[0x90; 16], UNSTAMPED, None, b"placed");
        writer.element(&unplaced_list_path_append(0), UNSTAMPED, None, b"to be placed");
        writer.end_complex();
        assert_eq!((takes(&packed, false), takes(&packed, true)), ([true; 3], [false; 3]));
    }

    #[test]
    fn a_step_with_a_record_that_no_tablet_can_adopt_is_not_taken() {
        let taken = |key: &[u8], value: &[u8]| {
            let (from, rows) = (TabletId(7), vec![(key.to_vec(), value.to_vec())]);
            let step = MergeStep::Take { from, attempt: 1, number: 1, instead_of: None, rows };
            let step = step.mutation().expect("a small step");
            checked(TabletId(1_000), step.as_bytes()).is_ok()
        };
        assert!(taken(&[7; 12], b"a row"));
        assert!(!taken(&specification_key(3), b"no specification") && !taken(&[0; 12], b""));
        let specification = Specification::from_definition(&[1, 0, 11, 0, 1, 0, 0, 11]).expect("of one column");
        assert!(taken(&specification_key(3), &specification.encode()));
        assert!(!taken(&[0; 12], &specification.encode()), "under a key of its own");
    }

    #[test]
    fn what_can_be_read_and_is_over_a_limit_is_not_taken_from_a_node_that_has_another() {
        let catalog = TabletId(GroupId::CATALOG.0);
        let command = Command::RemoveNode { node: NodeId(1), only_without_vote: false };
        let command = command.proven_at(Level::FIRST).expect("a small command");
        let command = Mutation::evaluated(None, &command);
        let header = &command.as_bytes()[..9];
        let column = Column { id: 1, name: "v".to_owned(), data_type: CqlType::Int, kind: ColumnKind::Regular };
        let with_columns = |count: usize| {
            let table = Table {
                id: TableId(7),
                uuid: Uuid::from_u128(7),
                keyspace: "ks".to_owned(),
                name: "t".to_owned(),
                version: 1,
                columns: vec![column.clone(); count],
                next_column_id: 2,
                indexes: Vec::new(),
                deferred_indexes: Vec::new(),
                index_of: None,
                views: Vec::new(),
                view: None,
                default_ttl_s: 0,
                gc_grace_s: 0,
                options: BTreeMap::new(),
            };
            let program = Command::AlterTable { table }.encode();
            assert!(Command::decode(&program).is_ok());
            checked(catalog, &[header, &program].concat()).is_ok()
        };
        assert!(with_columns(MAX_COLUMNS) && !with_columns(MAX_COLUMNS + 1));
    }
}
