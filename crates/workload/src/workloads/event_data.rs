//! CassandraEventData: devices emit events of several types, written as one logged batch of one device and read back in
//! reverse order: those of one device and one type in a range of time.
//!
//! Always true: the type of an event is a function of device and time, and its value says both, so a read must find
//! exactly the events of its type; [`super::batches`] says which events there are.
//!
//! Left out: another number of types for the same devices in a later run, which would find events at the same times
//! that it did not write.

use std::sync::Arc;

use diorite_base::random::{Random, SplitMix64};
use scylla::client::session::Session;
use scylla::response::query_result::QueryRowsResult;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::batches::Series;
use super::scratch::Scratch;
use crate::WorkloadError;
use crate::arguments::DataShape;
use crate::data::{Version, check_value, write_value};
use crate::error::{Failure, Problem};
use crate::session::{batch, create_table, prepare, rows_of};
use crate::statements::Statements;

/// The workload, shared by all tasks.
pub struct EventData {
    session: Arc<Session>,
    batch: Batch,
    select: PreparedStatement,
    devices: Vec<Series>,
    shape: DataShape,
    events: Events,
}

/// What the events are: functions of their time and not of their number, so that those of an earlier run at the same
/// times are the same.
#[derive(Debug, Clone, Copy)]
struct Events {
    types: u64,
    value_size: usize,
    /// Events are counted from here.
    start_ms: i64,
}

/// One event as it is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event<'row> {
    device: &'row str,
    time: i64,
    event_type: &'row str,
    value: &'row [u8],
}

impl EventData {
    /// Creates the table and its index and prepares the statements; events count from `start_ms`.
    pub async fn new(
        session: Arc<Session>,
        prefix: &str,
        statements: &Statements,
        read_consistency: Consistency,
        shape: DataShape,
        value_size: usize,
        start_ms: i64,
    ) -> Result<Self, WorkloadError> {
        create_table(&session, statements).await?;
        let insert = prepare(&session, &statements.insert, Consistency::Quorum).await?;
        let select = prepare(&session, &statements.select, read_consistency).await?;
        let devices = (0..shape.devices).map(|device| Series::new(format!("{prefix}:device-{device:05}")));
        let batch = batch(BatchType::Logged, &insert, shape.batch_size);
        let events = Events { types: shape.event_types, value_size, start_ms };
        Ok(Self { session, batch, select, devices: devices.collect(), shape, events })
    }

    /// Writes the next batch of events of some device.
    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let index = scratch.random.below(self.devices.len() as u64);
        let device = &self.devices[index as usize];
        let number = device.begin();
        let size = self.shape.batch_size as u64;
        let points = number * size + 1..=(number + 1) * size;
        let rows: Vec<_> = points
            .map(|point| {
                let (event_type, value) = (self.events.type_of(index, point), self.events.value(index, point));
                (device.name.as_str(), self.events.time(point), event_type.to_string(), value)
            })
            .collect();
        let sent = self.session.batch(&self.batch, &rows[..]).await;
        device.end(number, sent.is_ok());
        sent.map(|_| size).map_err(Failure::request)
    }

    /// Reads some events of a device and a type backwards and checks them.
    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let index = scratch.random.below(self.devices.len() as u64);
        let device = &self.devices[index as usize];
        let range = device.some_range(&mut scratch.random, self.shape).ok_or(Failure::Nothing)?;
        let asked = scratch.random.below(self.events.types);
        let event_type = asked.to_string();
        let (after, before) = (self.events.time(range.first - 1), self.events.time(range.last + 1));
        let bound = (device.name.as_str(), after, before, event_type.as_str(), range.limit as i32);
        let answer = self.session.execute_unpaged(&self.select, bound).await.map_err(Failure::request)?;
        let found = rows_of(answer).and_then(|rows| {
            let points =
                events_of(&rows)?.into_iter().map(|event| self.events.check(index, &device.name, asked, event));
            points.collect::<Result<Vec<u64>, _>>()
        });
        let is_asked = |point| self.events.type_of(index, point) == asked;
        let checked = found.and_then(|found| range.check(&found, is_asked).map(|()| found.len() as u64));
        let key = || format!("({}, {after} < ts < {before}, event_type {event_type})", device.name);
        checked.map_err(|problem| Failure::violation(key(), problem))
    }
}

fn events_of(rows: &QueryRowsResult) -> Result<Vec<Event<'_>>, Problem> {
    let rows = rows.rows::<(&str, i64, &str, &[u8])>().map_err(Problem::shape)?;
    rows.map(|row| {
        let (device, time, event_type, value) = row.map_err(Problem::shape)?;
        Ok(Event { device, time, event_type, value })
    })
    .collect()
}

impl Events {
    fn time(&self, point: u64) -> i64 {
        self.start_ms + point as i64
    }

    fn type_of(&self, device: u64, point: u64) -> u64 {
        let place = SplitMix64::new(device).next_u64() ^ self.time(point) as u64;
        SplitMix64::new(place).below(self.types)
    }

    fn value(&self, device: u64, point: u64) -> Vec<u8> {
        let mut value = Vec::new();
        write_value(device, Version(self.time(point) as u64), self.value_size, &mut value);
        value
    }

    /// Checks an event that was found of a device and a type; its number.
    fn check(&self, device: u64, name: &str, asked: u64, event: Event<'_>) -> Result<u64, Problem> {
        let Event { device: found, time, event_type, value } = event;
        if found != name || event_type != asked.to_string() {
            return Err(Problem::shape(format!("the row of {found} with event_type {event_type:?}")));
        }
        let written = check_value(device, self.value_size, value).map_err(Problem::Wrong)?;
        if written != Version(time as u64) {
            return Err(Problem::shape(format!("the value at ts {time} is of ts {}", written.0)));
        }
        Ok(u64::try_from(time - self.start_ms).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    const EVENTS: Events = Events { types: 5, value_size: 100, start_ms: 1_700_000_000_000 };

    #[test]
    fn all_types_of_events_come_and_differ_by_device_and_time() {
        let types = |device| (1..=1_000).map(|point| EVENTS.type_of(device, point)).collect::<Vec<_>>();
        let (first, second) = (types(0), types(1));
        assert_ne!(first, second);
        for event_type in 0..5 {
            let times = first.iter().filter(|&&found| found == event_type).count();
            assert!((100..300).contains(&times), "{times} events of type {event_type}");
        }
        assert!(first.iter().all(|&event_type| event_type < 5));
    }

    #[test]
    fn an_event_of_an_earlier_run_at_the_same_time_is_the_same() {
        let later = Events { start_ms: EVENTS.start_ms + 30, ..EVENTS };
        assert_eq!(later.type_of(3, 12), EVENTS.type_of(3, 42));
        assert_eq!(later.value(3, 12), EVENTS.value(3, 42));
    }

    #[test]
    fn foreign_and_damaged_events_are_found() {
        let value = EVENTS.value(3, 42);
        let event = Event { device: "d", time: EVENTS.time(42), event_type: "4", value: &value };
        assert_eq!(EVENTS.check(3, "d", 4, event).unwrap(), 42);
        assert!(EVENTS.check(3, "e", 4, event).is_err(), "of another device");
        assert!(EVENTS.check(3, "d", 2, event).is_err(), "of another type");
        assert!(matches!(EVENTS.check(2, "d", 4, event), Err(Problem::Wrong(_))), "the value of another device");
        let later = Event { time: event.time + 1, ..event };
        assert!(EVENTS.check(3, "d", 4, later).is_err(), "the value of another time");
        let mut damaged = value.clone();
        damaged[50] ^= 1;
        assert!(matches!(EVENTS.check(3, "d", 4, Event { value: &damaged, ..event }), Err(Problem::Wrong(_))));
        assert!(EVENTS.check(3, "d", 4, Event { value: &value[1..], ..event }).is_err(), "too short");
        let earlier = Event { time: EVENTS.start_ms - 7, ..event };
        assert!(EVENTS.check(3, "d", 4, earlier).is_err());
    }
}
