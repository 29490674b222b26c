//! What an open tablet knows of its time windows, and when it looks at its files again.

use crate::table_options::CompactionStyle;
use crate::ttls::Ttls;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The wait after which such a file is read again if something in it may expire, seconds; it doubles each time.
const AGAIN_S: u64 = 86_400;
/// The longest time between two looks at the files, seconds.
const LONGEST_REST_S: u32 = 30;

/// What is known of the windows of an open tablet.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(crate) ttls: Ttls,
    pub(crate) looks: Mutex<Looks>,
    /// Whether windows have expired at the present time, which the log may not have yet.
    pub(crate) await_time: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// The tablet's background work before the last look.
    work: Option<u64>,
    /// When the next look is due, if there is no work before.
    next_s: u32,
    /// The window in which the memtable was last looked at.
    pub(crate) looked_in: u32,
    /// When the tried file is to be read again; 0: never.
    pub(crate) again_s: u64,
    wait_s: u64,
    /// The time to live that was last noted.
    pub(crate) noted_s: u32,
    /// Whether stored rows were looked at for times to live.
    pub(crate) has_sampled: bool,
}

impl Windows {
    /// For a tablet that is about to be opened.
    pub(crate) fn of(style: CompactionStyle, directory: &Path) -> Option<Self> {
        let CompactionStyle::TimeWindow { .. } = style else { return None };
        let ttls = Ttls::recall(directory);
        let noted_s = ttls.usual_s();
        let looks = Mutex::new(Looks { noted_s, ..Looks::default() });
        Some(Self { ttls, looks, await_time: AtomicBool::new(false) })
    }

    /// Whether windows will go once the tablet's log has the present time.
    pub(crate) fn await_time(&self) -> bool {
        self.await_time.load(Ordering::Relaxed)
    }
}

impl Looks {
    /// Whether a look is due after so much background work.
    pub(crate) fn take_due(&mut self, work: u64, present_s: u32, window_s: u32) -> bool {
        let rest_s = (window_s / 20).clamp(1, LONGEST_REST_S);
        // The clock may have been set back.
        let is_due =
            self.work != Some(work) || present_s >= self.next_s || self.next_s - present_s > 2 * LONGEST_REST_S;
        if is_due {
            self.work = Some(work);
            self.next_s = present_s.saturating_add(rest_s);
        }
        is_due
    }

    /// Notes that what was left of expired windows is one file now, and whether something in it may expire.
    pub(crate) fn note_tried(&mut self, present_s: u32, awaits_time: bool, was_alone: bool) {
        self.wait_s = if was_alone { self.wait_s.saturating_mul(2) } else { AGAIN_S };
        self.again_s = if awaits_time { u64::from(present_s).saturating_add(self.wait_s) } else { 0 };
    }
}
