//! The golden bytes of a tablet's records about its merges.

use super::tests::Taking;
use super::*;
use diorite_base::Levels;
use diorite_golden::{Decoded, Golden, kinds};

kinds!(STAGES, stage_of(Stage): Taking, Finished, Discarded);

fn stored(progress: Progress) -> Vec<u8> {
    let mut taking = Taking::default();
    progress.put(TabletId(1_001), &mut taking);
    taking.stored(&absorbed_key(1_001)).to_vec()
}

#[test]
fn records_of_merges_have_their_bytes() {
    let progress = Progress { number: 7, attempt: 9, parts: 4, stage: Stage::Taking, pieces: 2 };
    let written = [
        ("taking", stored(progress)),
        ("finished", stored(Progress { stage: Stage::Finished, ..progress })),
        ("cancelled", stored(Progress { stage: Stage::Discarded, ..progress })),
        // Without the number of the merge.
        ("taking, of an earlier version", stored(progress)[..17].to_vec()),
    ];
    let golden = Golden { level: Levels::OWN.greatest.0, format: "merge-record", kinds: &[STAGES] };
    golden.check(&written, |_, bytes| {
        let progress = Progress::decode(bytes).expect("a record");
        let encoded = Some(stored(progress)).filter(|_| bytes.len() > 17);
        Decoded { kinds: vec![stage_of(&progress.stage)], shown: format!("{progress:?}"), encoded }
    });
}

/// What a tablet that was to close has under its own id.
#[test]
fn the_record_of_a_cancelled_merge_has_its_bytes() {
    let golden = Golden { level: Levels::OWN.greatest.0, format: "cancelled-merge-record", kinds: &[] };
    golden.check(&[("cancelled", 77_u64.to_le_bytes().to_vec())], |_, bytes| {
        let number = given_up(TabletId(1_001), Some(bytes)).expect("a number");
        Decoded { kinds: vec![], shown: format!("{number:?}"), encoded: None }
    });
}
