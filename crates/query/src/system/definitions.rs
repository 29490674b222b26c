//! The definitions of the system tables, as CQL.
//!
//! Always true: every statement parses and is accepted by the rules of `CREATE TABLE` (a test reads them all).

use crate::ddl;
use diorite_base::TableId;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::Statement;
use diorite_model::schema::{Keyspace, Table};
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Options that tables and materialized views have in common in `system_schema`.
macro_rules! shared_options {
    () => {
        "additional_write_policy text, bloom_filter_fp_chance double, caching frozen<map<text, text>>, cdc boolean, \
         comment text, compaction frozen<map<text, text>>, compression frozen<map<text, text>>, \
         crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int, \
         extensions frozen<map<text, blob>>, gc_grace_seconds int, id uuid, max_index_interval int, memtable text, \
         memtable_flush_period_in_ms int, min_index_interval int, read_repair text, read_repair_chance double, \
         speculative_retry text, "
    };
}

/// Each keyspace's name, and its tables.
const KEYSPACES: &[(&str, &[&str])] = &[
    (
        "system",
        &[
            "CREATE TABLE local (key text PRIMARY KEY, bootstrapped text, broadcast_address inet, broadcast_port int, \
             cluster_name text, cql_version text, data_center text, gossip_generation int, host_id uuid, \
             listen_address inet, listen_port int, native_protocol_version text, partitioner text, rack text, \
             release_version text, rpc_address inet, rpc_port int, schema_version uuid, tokens set<text>, \
             truncated_at map<uuid, blob>) WITH comment = 'information about the local node'",
            "CREATE TABLE peers (peer inet PRIMARY KEY, data_center text, host_id uuid, preferred_ip inet, rack text, \
             release_version text, rpc_address inet, schema_version uuid, tokens set<text>) \
             WITH comment = 'information about known peers in the cluster'",
            "CREATE TABLE peers_v2 (peer inet, peer_port int, data_center text, host_id uuid, native_address inet, \
             native_port int, preferred_ip inet, preferred_port int, rack text, release_version text, \
             schema_version uuid, tokens set<text>, PRIMARY KEY (peer, peer_port)) \
             WITH comment = 'information about known peers in the cluster'",
            "CREATE TABLE partitions (keyspace_name text, table_name text, start_key blob, end_key blob, id uuid, \
             replica_addresses frozen<map<inet, text>>, PRIMARY KEY ((keyspace_name, table_name), start_key)) \
             WITH comment = 'always empty: partitions by another hash'",
            "CREATE TABLE size_estimates (keyspace_name text, table_name text, range_start text, range_end text, \
             mean_partition_size bigint, partitions_count bigint, \
             PRIMARY KEY (keyspace_name, table_name, range_start, range_end)) WITH comment = 'always empty'",
            "CREATE TABLE table_estimates (keyspace_name text, table_name text, range_type text, range_start text, \
             range_end text, mean_partition_size bigint, partitions_count bigint, \
             PRIMARY KEY (keyspace_name, table_name, range_type, range_start, range_end)) \
             WITH comment = 'always empty'",
            "CREATE TABLE available_ranges (keyspace_name text PRIMARY KEY, ranges set<blob>) \
             WITH comment = 'always empty'",
            "CREATE TABLE available_ranges_v2 (keyspace_name text PRIMARY KEY, full_ranges set<blob>, \
             transient_ranges set<blob>) WITH comment = 'always empty'",
            "CREATE TABLE built_views (keyspace_name text, view_name text, status_replicated boolean, \
             PRIMARY KEY (keyspace_name, view_name)) WITH comment = 'always empty'",
            "CREATE TABLE \"IndexInfo\" (table_name text, index_name text, value blob, \
             PRIMARY KEY (table_name, index_name)) WITH comment = 'built column indexes'",
            "CREATE TABLE prepared_statements (prepared_id blob PRIMARY KEY, logged_keyspace text, query_string text) \
             WITH comment = 'always empty'",
        ],
    ),
    (
        "system_auth",
        &[
            "CREATE TABLE roles (role text PRIMARY KEY, can_login boolean, is_superuser boolean, member_of set<text>, \
             salted_hash text) WITH comment = 'role definitions'",
            "CREATE TABLE role_members (role text, member text, PRIMARY KEY (role, member)) \
             WITH comment = 'role memberships lookup table'",
            "CREATE TABLE role_permissions (role text, resource text, permissions set<text>, \
             PRIMARY KEY (role, resource)) WITH comment = 'permissions granted to db roles'",
            "CREATE TABLE resource_role_permissons_index (resource text, role text, PRIMARY KEY (resource, role)) \
             WITH comment = 'index of db roles with permissions granted on a resource'",
            "CREATE TABLE network_permissions (role text PRIMARY KEY, dcs frozen<set<text>>) \
             WITH comment = 'user network permissions'",
            "CREATE TABLE cidr_permissions (role text PRIMARY KEY, cidr_groups frozen<set<text>>) \
             WITH comment = 'user cidr permissions'",
            "CREATE TABLE cidr_groups (cidr_group text PRIMARY KEY, cidrs frozen<set<frozen<tuple<inet, smallint>>>>) \
             WITH comment = 'cidr groups in the cluster'",
        ],
    ),
    (
        "system_schema",
        &[
            "CREATE TABLE keyspaces (keyspace_name text PRIMARY KEY, durable_writes boolean, \
             replication frozen<map<text, text>>) WITH comment = 'keyspace definitions'",
            "CREATE TABLE scylla_keyspaces (keyspace_name text PRIMARY KEY, initial_tablets int, \
             storage_options frozen<map<text, text>>, storage_type text) \
             WITH comment = 'which keyspaces have tablets, for drivers that ask'",
            concat!(
                "CREATE TABLE tables (keyspace_name text, table_name text, flags frozen<set<text>>, ",
                shared_options!(),
                "transactions frozen<map<text, text>>, ",
                "PRIMARY KEY (keyspace_name, table_name)) WITH comment = 'table definitions'"
            ),
            "CREATE TABLE columns (keyspace_name text, table_name text, column_name text, clustering_order text, \
             column_name_bytes blob, kind text, position int, type text, \
             PRIMARY KEY (keyspace_name, table_name, column_name)) WITH comment = 'column definitions'",
            "CREATE TABLE dropped_columns (keyspace_name text, table_name text, column_name text, \
             dropped_time timestamp, kind text, type text, PRIMARY KEY (keyspace_name, table_name, column_name)) \
             WITH comment = 'always empty: ids of columns are never reused'",
            "CREATE TABLE triggers (keyspace_name text, table_name text, trigger_name text, \
             options frozen<map<text, text>>, PRIMARY KEY (keyspace_name, table_name, trigger_name)) \
             WITH comment = 'trigger definitions'",
            concat!(
                "CREATE TABLE views (keyspace_name text, view_name text, base_table_id uuid, base_table_name text, \
                 include_all_columns boolean, where_clause text, ",
                shared_options!(),
                "PRIMARY KEY (keyspace_name, view_name)) WITH comment = 'view definitions'"
            ),
            "CREATE TABLE indexes (keyspace_name text, table_name text, index_name text, kind text, \
             options frozen<map<text, text>>, PRIMARY KEY (keyspace_name, table_name, index_name)) \
             WITH comment = 'secondary index definitions'",
            "CREATE TABLE types (keyspace_name text, type_name text, field_names frozen<list<text>>, \
             field_types frozen<list<text>>, PRIMARY KEY (keyspace_name, type_name)) \
             WITH comment = 'user defined type definitions'",
            "CREATE TABLE functions (keyspace_name text, function_name text, argument_types frozen<list<text>>, \
             argument_names frozen<list<text>>, body text, called_on_null_input boolean, language text, \
             return_type text, PRIMARY KEY (keyspace_name, function_name, argument_types)) \
             WITH comment = 'user defined function definitions'",
            "CREATE TABLE aggregates (keyspace_name text, aggregate_name text, argument_types frozen<list<text>>, \
             final_func text, initcond text, return_type text, state_func text, state_type text, \
             PRIMARY KEY (keyspace_name, aggregate_name, argument_types)) \
             WITH comment = 'user defined aggregate definitions'",
        ],
    ),
    (
        "system_traces",
        &[
            "CREATE TABLE sessions (session_id uuid PRIMARY KEY, client inet, command text, coordinator inet, \
             coordinator_port int, duration int, parameters map<text, text>, request text, started_at timestamp) \
             WITH comment = 'tracing sessions'",
            "CREATE TABLE events (session_id uuid, event_id timeuuid, activity text, source inet, \
             source_elapsed int, source_port int, thread text, PRIMARY KEY (session_id, event_id)) \
             WITH comment = 'tracing events'",
        ],
    ),
    (
        "system_virtual_schema",
        &[
            "CREATE TABLE keyspaces (keyspace_name text PRIMARY KEY) WITH comment = 'virtual keyspace definitions'",
            "CREATE TABLE tables (keyspace_name text, table_name text, comment text, \
             PRIMARY KEY (keyspace_name, table_name)) WITH comment = 'virtual table definitions'",
            "CREATE TABLE columns (keyspace_name text, table_name text, column_name text, clustering_order text, \
             column_name_bytes blob, kind text, position int, type text, \
             PRIMARY KEY (keyspace_name, table_name, column_name)) \
             WITH comment = 'virtual column definitions'",
        ],
    ),
];

/// A keyspace of the server with its tables.
pub(super) struct Entry {
    pub keyspace: Keyspace,
    pub tables: BTreeMap<String, Arc<Table>>,
}

/// All of them, by name.
pub(super) fn all() -> &'static BTreeMap<String, Entry> {
    static ALL: LazyLock<BTreeMap<String, Entry>> = LazyLock::new(read);
    &ALL
}

fn read() -> BTreeMap<String, Entry> {
    // Counted down from the top: the catalog counts up.
    let mut next_id = u64::MAX;
    let mut entries = BTreeMap::new();
    for (name, statements) in KEYSPACES {
        let class = [("class".to_owned(), "org.apache.cassandra.locator.LocalStrategy".to_owned())];
        let keyspace = Keyspace { name: (*name).to_owned(), replication: class.into(), durable_writes: true };
        let tables = statements.iter().map(|statement| {
            next_id -= 1;
            let table = define(name, statement, TableId(next_id));
            (table.name.clone(), Arc::new(table))
        });
        let tables = tables.collect();
        entries.insert((*name).to_owned(), Entry { keyspace, tables });
    }
    entries
}

fn define(keyspace: &str, statement: &str, id: TableId) -> Table {
    let parsed = diorite_cql::language::parse(statement).expect("a definition in this file parses");
    let Statement::CreateTable(create) = parsed.statement else {
        unreachable!("definitions in this file create tables");
    };
    let catalog = Catalog::default();
    let table = ddl::define_table(&catalog, keyspace, &create).expect("a definition in this file is valid");
    let digest = Md5::digest(format!("{keyspace}{}", table.name));
    let uuid = uuid::Builder::from_md5_bytes(digest.into()).into_uuid();
    Table { id, uuid, version: 1, gc_grace_s: 0, ..table }
}

/// The definition of a system table.
pub fn table(keyspace: &str, name: &str) -> Option<Arc<Table>> {
    all().get(keyspace)?.tables.get(name).cloned()
}

/// The server's own keyspaces with their tables by name.
pub fn keyspaces() -> impl Iterator<Item = (&'static Keyspace, Vec<&'static Arc<Table>>)> {
    all().values().map(|entry| (&entry.keyspace, entry.tables.values().collect()))
}

/// The server's own keyspace called `name`.
pub fn keyspace(name: &str) -> Option<&'static Keyspace> {
    all().get(name).map(|entry| &entry.keyspace)
}
