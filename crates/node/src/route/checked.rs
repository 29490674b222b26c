//! Which writes the replicas of a tablet can apply.

use diorite_base::mutation::Mutation;
use diorite_base::program::{ProvenProgram, Target};
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_cluster::catalog::Command;
use diorite_query::program::Program;
use diorite_replica::MergeStep;

/// Which replicas evaluate what is written to a tablet.
pub(super) fn target_of(tablet: TabletId) -> Target {
    if tablet.0 == GroupId::CATALOG.0 { Target::Catalog } else { Target::Rows }
}

/// A write that came from another node, if the tablet's replicas can apply it. What cannot be applied must not reach the log: replicas stop at it.
pub(super) fn checked(tablet: TabletId, bytes: &[u8]) -> Result<Mutation, KvError> {
    let target = target_of(tablet);
    let prove = |program: &[u8]| match target {
        Target::Catalog => ProvenProgram::read::<Command>(program),
        Target::Rows => ProvenProgram::read::<MergeStep>(program).or_else(|_| ProvenProgram::read::<Program>(program)),
    };
    let mutation = Mutation::decode(bytes.to_vec(), prove)?;
    mutation.check_for(target)?;
    Ok(mutation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::NodeId;

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
        // What the catalog evaluates, and it alone.
        let catalog = TabletId(GroupId::CATALOG.0);
        let command = Command::RemoveNode { node: NodeId(1) };
        let command = Mutation::evaluated(None, &ProvenProgram::new(&command).expect("a small command"));
        assert!(checked(catalog, command.as_bytes()).is_ok() && !taken(&command));
        assert!(checked(catalog, begin.as_bytes()).is_err());
        assert!(checked(catalog, Mutation::blind(None).as_bytes()).is_err());
    }
}
