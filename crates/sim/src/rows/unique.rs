//! The table with a unique index: its rows are compared by work that outlives whoever has begun it, and in the end the
//! table of the index names each row that has a value.

use super::kv::SimKv;
use super::schema::{RowWorld, unlimited};
use super::statements::CLAIMANTS;
use diorite_base::{TableId, TabletId};
use diorite_cql::protocol::CqlError;
use diorite_model::key::push_row;
use diorite_query::engine::{Comparison, RowComparer};
use diorite_query::exec::modify::unique::{index_key, owner_of, stored_key, unique_values};
use diorite_query::exec::raw::RawRead;
use diorite_query::index::{Compared, IndexStep};
use diorite_query::kv::Kv as _;
use diorite_query::table::{Source, TableContext};
use std::pin::Pin;
use std::sync::Arc;

/// Compares rows, and proposes the step that says so.
pub(super) async fn compare(
    comparer: RowComparer<SimKv>,
    kv: Arc<SimKv>,
    of: (TableId, TabletId),
    index: u64,
    (rows, mut step): (Vec<Vec<u8>>, IndexStep),
) {
    for row in rows {
        match comparer.compare_row(of.0, index, &row, &unlimited()).await {
            Ok(Comparison::Alone) => {}
            Ok(Comparison::Duplicate(why) | Comparison::Impossible(why)) => {
                if let IndexStep::Compare { to, .. } = &mut step {
                    *to = Compared::Failed(why);
                }
                break;
            }
            Err(_) => return,
        }
    }
    drop(kv.write(of.1, step.mutation().expect("steps are small"), None).await);
}

/// The rows that the table of the index should name, and does not.
pub(super) type Unnamed = Pin<Box<dyn Future<Output = Result<Vec<u64>, CqlError>> + Send>>;

impl RowWorld {
    /// Looks for rows that have a value and are not named.
    pub(super) fn unnamed(&self) -> Unnamed {
        let kv = Arc::clone(&self.kv);
        Box::pin(async move {
            let catalog = kv.catalog();
            let entry = Arc::clone(catalog.table("ks", "u").expect("it was created"));
            let (table, budget) = (context(&entry.table), unlimited());
            let mut unnamed = Vec::new();
            for k in 0..CLAIMANTS {
                let mut row = Vec::new();
                let wire = (k as u32).to_be_bytes();
                table.layout().encode_partition([&wire[..]].into_iter(), &mut row).expect("an int");
                push_row(&mut row);
                let base = RawRead { kv: &kv, table: &table, budget: &budget };
                let Some(found) = base.row(&row).await? else { continue };
                let values = unique_values(&table, &found.live()?)?;
                for (_, unique) in entry.table.unique_indexes() {
                    let Some(key) = index_key(&table, unique, &values)? else { continue };
                    let of_index = catalog.table_by_id(unique.table).expect("the index has a table");
                    let index_table = context(&of_index.table);
                    let read = RawRead { kv: &kv, table: &index_table, budget: &budget };
                    let named = read.row(&stored_key(of_index, &key)?).await?;
                    let owner = named.map(|named| owner_of(&named.live()?)).transpose()?.flatten();
                    if owner.as_ref() != Some(&row) {
                        unnamed.push(k);
                    }
                }
            }
            Ok(unnamed)
        })
    }
}

fn context(table: &Arc<diorite_model::schema::Table>) -> Arc<TableContext> {
    Arc::new(TableContext::new(Arc::clone(table), Source::Tablets))
}
