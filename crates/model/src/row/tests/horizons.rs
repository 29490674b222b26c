//! Compaction between writes: the content of a row does not depend on when it was folded and compacted, as long as
//! compaction used no later horizon than that of the newest entry that it folded.

use super::reference::{self, Input};
use super::view;
use crate::entry::{Compaction, bounded, can_fold_apart, compact, fold};
use crate::row::NOTHING_DELETED;
use diorite_base::Horizon;
use proptest::prelude::*;

const SECOND_US: i64 = 1_000_000;

/// A write, or time that passes.
#[derive(Debug, Clone)]
enum Step {
    Write(Input),
    Pass { seconds: u32, rows_s: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pass = (1u32..5, 0u32..9).prop_map(|(seconds, rows_s)| Step::Pass { seconds, rows_s });
    let write = reference::input(SECOND_US, 0).prop_map(Step::Write);
    prop::collection::vec(prop_oneof![3 => write, 2 => pass], 2..9)
}

/// What storage does by itself: it folds neighbours, or compacts the oldest value.
#[derive(Debug, Clone)]
enum Work {
    FoldApart(prop::sample::Index),
    FoldOntoBase,
    Compact { late_s: u32 },
}

fn work() -> impl Strategy<Value = Vec<Work>> {
    let apart = any::<prop::sample::Index>().prop_map(Work::FoldApart);
    let late = (0u32..3).prop_map(|late_s| Work::Compact { late_s });
    prop::collection::vec(prop_oneof![apart, Just(Work::FoldOntoBase), late], 0..4)
}

/// The content of a key: a folded value with the horizon of the newest entry in it, and operands that came later.
#[derive(Default)]
struct Stored {
    base: Option<Vec<u8>>,
    base_at: Horizon,
    operands: Vec<(Vec<u8>, Horizon)>,
}

impl Stored {
    fn all(&self) -> Vec<&[u8]> {
        self.base.as_deref().into_iter().chain(self.operands.iter().map(|(value, _)| value.as_slice())).collect()
    }

    /// `ahead_s`: how far the compaction's horizon is ahead of the one allowed.
    fn work(&mut self, work: &Work, ahead_s: u32) {
        match work {
            Work::FoldApart(at) if self.operands.len() > 1 => {
                let at = at.index(self.operands.len() - 1);
                let ((one, _), (other, horizon)) = (self.operands[at].clone(), self.operands[at + 1].clone());
                if can_fold_apart([one.as_slice(), &other]) {
                    let mut folded = Vec::new();
                    fold(None, [one.as_slice(), &other], &mut folded).unwrap();
                    self.operands.splice(at..at + 2, [(folded, horizon)]);
                }
            }
            Work::FoldOntoBase if !self.operands.is_empty() => {
                let (operand, horizon) = self.operands.remove(0);
                let mut folded = Vec::new();
                fold(self.base.as_deref(), [operand.as_slice()], &mut folded).unwrap();
                (self.base, self.base_at) = (Some(folded), horizon);
            }
            Work::Compact { late_s } => {
                let Horizon { now_s, rows_s, ranges_s } = self.base_at;
                let earlier = |second: u32| (second + ahead_s).saturating_sub(*late_s);
                let horizon = Horizon { now_s: earlier(now_s), rows_s: earlier(rows_s), ranges_s };
                match self.base.as_deref().map(|base| compact(base, horizon)) {
                    Some(Compaction::Remove) => self.base = None,
                    Some(Compaction::Replace(less)) => self.base = Some(less),
                    Some(Compaction::Keep) | None => {}
                }
            }
            Work::FoldApart(_) | Work::FoldOntoBase => {}
        }
    }
}

/// The final view of rows written one after the other: with storage at work in between, and without.
fn seen(steps: &[Step], works: &[Vec<Work>], ahead_s: u32) -> [super::View; 2] {
    let (mut stored, mut plain, mut horizon) = (Stored::default(), Vec::<u8>::new(), Horizon::default());
    for (step, works) in steps.iter().zip(works) {
        match step {
            Step::Pass { seconds, rows_s } => {
                let now_s = horizon.now_s + seconds;
                horizon = horizon.max(Horizon { now_s, rows_s: now_s.min(*rows_s), ranges_s: 0 });
            }
            Step::Write(input) => {
                let packed = input.encode();
                let operand = bounded(&packed, horizon).unwrap_or(packed);
                let before = Some(plain.as_slice()).filter(|plain| !plain.is_empty());
                let mut folded = Vec::new();
                fold(before, [operand.as_slice()], &mut folded).unwrap();
                plain = folded;
                stored.operands.push((operand, horizon));
            }
        }
        works.iter().for_each(|work| stored.work(work, ahead_s));
    }
    let shown =
        |row: &[u8]| if row.is_empty() { super::View::default() } else { view(row, horizon.now_s, NOTHING_DELETED) };
    let mut folded = Vec::new();
    if !stored.all().is_empty() {
        fold(None, stored.all(), &mut folded).unwrap();
    }
    [shown(&folded), shown(&plain)]
}

fn runs() -> impl Strategy<Value = (Vec<Step>, Vec<Vec<Work>>)> {
    steps().prop_flat_map(|steps| {
        let count = steps.len();
        (Just(steps), prop::collection::vec(work(), count))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn what_a_row_shows_does_not_depend_on_when_it_was_compacted((steps, works) in runs()) {
        let [compacted, plain] = seen(&steps, &works, 0);
        prop_assert_eq!(compacted, plain);
    }
}

#[test]
fn a_compaction_that_knows_a_later_time_than_the_log_is_found_out() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let (mut runner, strategy) = (TestRunner::deterministic(), runs());
    let differs = (0..5_000).any(|_| {
        let (steps, works) = strategy.new_tree(&mut runner).unwrap().current();
        let [compacted, plain] = seen(&steps, &works, 4);
        compacted != plain
    });
    assert!(differs);
}
