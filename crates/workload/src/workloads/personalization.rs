//! CassandraPersonalization: customers with coupons in each store. A logged batch writes all coupons of one customer; a
//! read returns those of one store, which are one partition.
//!
//! Always true: a write replaces every coupon of the customer, and each coupon carries the version of its write, so a
//! read must find all coupons of the store with one version. The version is in the dates: coupons begin when the
//! writing process began, and end one second later for each write of the customer by that process. The score is a
//! function of customer, store, coupon and version.
//!
//! Left out: other numbers of coupons for the same customers in a later run, which would find coupons that it did not
//! write.

use std::sync::Arc;

use diorite_base::random::{Random, SplitMix64};
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;

use super::scratch::Scratch;
use crate::WorkloadError;
use crate::arguments::DataShape;
use crate::data::Version;
use crate::error::{Failure, Problem};
use crate::row_set::RowSet;
use crate::session::{batch, execute_schema, prepare, rows_of};
use crate::statements::Statements;

/// The code of the first coupon of a store.
const FIRST_CODE: u64 = 800_000_000_000;

/// The workload, shared by all tasks.
pub struct Personalization {
    session: Arc<Session>,
    rows: RowSet,
    /// All coupons of one customer.
    batch: Batch,
    select: PreparedStatement,
    /// The names of the stores.
    stores: Vec<String>,
    /// The codes of the coupons of a store, in the order of the table.
    codes: Vec<String>,
}

/// One coupon of a store as it is in the table.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Coupon<'row> {
    code: &'row str,
    begin: CqlTimestamp,
    end: CqlTimestamp,
    score: f64,
}

impl Personalization {
    /// Creates the table and prepares its statements.
    pub async fn new(
        session: Arc<Session>,
        rows: RowSet,
        statements: &Statements,
        read_consistency: Consistency,
        shape: DataShape,
    ) -> Result<Self, WorkloadError> {
        execute_schema(&session, &statements.create_table).await?;
        let insert = prepare(&session, &statements.insert, Consistency::Quorum).await?;
        let select = prepare(&session, &statements.select, read_consistency).await?;
        let batch = batch(BatchType::Logged, &insert, shape.stores * shape.coupons_per_store);
        let stores = (0..shape.stores).map(|store| store.to_string()).collect();
        Ok(Self { session, rows, batch, select, stores, codes: codes(shape.coupons_per_store) })
    }

    /// Writes all coupons of one customer.
    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let ticket = self.rows.next_write(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(ticket.number, &mut scratch.key);
        let customer = scratch.key.as_str();
        let stores = self.stores.iter().zip(0_u64..);
        let rows: Vec<_> = stores
            .flat_map(|(store, place)| {
                let coupons = coupons(&self.codes, ticket.number, place, ticket.version);
                coupons
                    .map(move |Coupon { code, begin, end, score }| (customer, store.as_str(), code, begin, end, score))
            })
            .collect();
        match self.session.batch(&self.batch, &rows[..]).await {
            Ok(_) => {
                self.rows.keys.acknowledge(ticket);
                Ok(rows.len() as u64)
            }
            Err(error) => {
                self.rows.keys.give_up(ticket);
                Err(Failure::request(error))
            }
        }
    }

    /// Reads the coupons of one customer in one store and checks them.
    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let (number, oldest) = self.rows.next_read(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(number, &mut scratch.key);
        let customer = scratch.key.as_str();
        let place = scratch.random.below(self.stores.len() as u64);
        let store = self.stores[place as usize].as_str();
        let answer = self.session.execute_unpaged(&self.select, (customer, store)).await.map_err(Failure::request)?;
        let found = rows_of(answer).and_then(|rows| {
            let rows = rows.rows::<(&str, &str, &str, CqlTimestamp, CqlTimestamp, f64)>().map_err(Problem::shape)?;
            let coupons = rows.map(|row| {
                let (found_customer, found_store, code, begin, end, score) = row.map_err(Problem::shape)?;
                if (found_customer, found_store) != (customer, store) {
                    return Err(Problem::shape(format!("a coupon of {found_customer} in store {found_store}")));
                }
                Ok(Coupon { code, begin, end, score })
            });
            check_coupons(&self.codes, number, place, &coupons.collect::<Result<Vec<_>, _>>()?)
        });
        let checked = found.and_then(|version| self.rows.check_version(number, oldest, version));
        checked.map_err(|problem| Failure::violation(format!("({customer}, {store})"), problem))?;
        Ok(self.codes.len() as u64)
    }
}

fn codes(coupons: usize) -> Vec<String> {
    // All have as many digits, so they are in the order of text too.
    (FIRST_CODE..).take(coupons).map(|code| code.to_string()).collect()
}

/// The coupons of a customer in a store.
fn coupons(codes: &[String], customer: u64, store: u64, version: Version) -> impl Iterator<Item = Coupon<'_>> {
    let begin = CqlTimestamp(i64::from(version.epoch_s()) * 1_000);
    let end = CqlTimestamp(begin.0 + i64::from(version.count()) * 1_000);
    let place = SplitMix64::new(customer).next_u64() ^ store;
    let mut scores = SplitMix64::new(SplitMix64::new(place).next_u64() ^ version.0);
    codes.iter().map(move |code| {
        // The upper 53 bits, which a double holds exactly.
        let score = (scores.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        Coupon { code, begin, end, score }
    })
}

/// The version that the dates of a coupon say.
fn version_of(coupon: &Coupon<'_>) -> Option<Version> {
    let seconds = |milliseconds: i64| u32::try_from(milliseconds / 1_000).ok();
    Some(Version::new(seconds(coupon.begin.0)?, seconds(coupon.end.0.checked_sub(coupon.begin.0)?)?))
}

/// Checks that all coupons of the store are there and of one write, or none; its version.
fn check_coupons(
    codes: &[String],
    customer: u64,
    store: u64,
    found: &[Coupon<'_>],
) -> Result<Option<Version>, Problem> {
    let Some(first) = found.first() else { return Ok(None) };
    let version = version_of(first).ok_or_else(|| Problem::shape(format!("the dates of coupon {}", first.code)))?;
    if found.len() != codes.len() {
        let (found, written) = (found.len(), codes.len());
        return Err(Problem::shape(format!("{found} of the {written} coupons that one batch wrote")));
    }
    for (coupon, written) in found.iter().zip(coupons(codes, customer, store, version)) {
        if *coupon != written {
            return Err(Problem::shape(format!("{coupon:?}, but version {version} of the first one is {written:?}")));
        }
    }
    Ok(Some(version))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    const VERSION: Version = Version(1_700_000_000 << 32 | 3);

    #[test]
    fn the_coupons_of_one_write_are_right_and_say_its_version() {
        let codes = codes(150);
        assert!(codes.is_sorted());
        let written: Vec<_> = coupons(&codes, 7, 1, VERSION).collect();
        assert_eq!(check_coupons(&codes, 7, 1, &written).unwrap(), Some(VERSION));
        assert_eq!(check_coupons(&codes, 7, 1, &[]).unwrap(), None);
        assert!(written.iter().all(|coupon| (0.0..1.0).contains(&coupon.score)));
    }

    #[test]
    fn missing_foreign_and_mixed_coupons_are_found() {
        let codes = codes(10);
        let written: Vec<_> = coupons(&codes, 7, 1, VERSION).collect();
        assert!(check_coupons(&codes, 7, 1, &written[1..]).is_err(), "the first is missing");
        assert!(check_coupons(&codes, 7, 1, &written[..9]).is_err(), "the last is missing");
        assert!(check_coupons(&codes, 7, 0, &written).is_err(), "of another store");
        assert!(check_coupons(&codes, 8, 1, &written).is_err(), "of another customer");
        let newer = coupons(&codes, 7, 1, Version(VERSION.0 + 1)).collect::<Vec<_>>();
        let mixed = [&written[..5], &newer[5..]].concat();
        assert!(check_coupons(&codes, 7, 1, &mixed).is_err(), "of two writes");
        let mut damaged = written.clone();
        damaged[4].score = 0.5;
        assert!(check_coupons(&codes, 7, 1, &damaged).is_err());
    }
}
