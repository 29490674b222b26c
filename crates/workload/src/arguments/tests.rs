//! The published command lines parse and mean what they say, in both spellings.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct CommandLine {
    #[command(flatten)]
    workload: WorkloadArguments,
}

fn parse(line: &str) -> WorkloadArguments {
    try_parse(line).unwrap()
}

fn try_parse(line: &str) -> Result<WorkloadArguments, clap::Error> {
    CommandLine::try_parse_from(std::iter::once("workload").chain(line.split_whitespace())).map(|line| line.workload)
}

const LOAD: &str = "--workload CassandraKeyValue --nouuid --nodes 10.0.0.1:9042,10.0.0.2 --value_size 256 \
                    --num_unique_keys 30000000000 --num_writes 30000000000 --num_threads_write 256 --num_threads_read 1";
const READ: &str = "--workload CassandraKeyValue --nouuid --nodes 10.0.0.1:9042 --value_size 256 \
                    --max_written_key 19999999999 --num_threads_write 2 --num_threads_read 32";

#[test]
fn the_published_load_command_line() {
    let arguments = parse(LOAD);
    assert_eq!(arguments.connection.nodes, ["10.0.0.1:9042", "10.0.0.2"]);
    assert_eq!((arguments.value_size, arguments.nouuid), (Some(256), true));
    let settings = arguments.settings().unwrap();
    assert_eq!((settings.writers, settings.readers), (256, 1));
    assert_eq!((settings.writes, settings.reads), (Some(30_000_000_000), None));
    assert_eq!((settings.first_new, settings.end_new), (0, 30_000_000_000));
}

#[test]
fn the_published_read_command_line() {
    let settings = parse(READ).settings().unwrap();
    assert_eq!((settings.writers, settings.readers), (2, 32));
    assert_eq!((settings.writes, settings.reads), (Some(2_000_000), Some(1_500_000)));
    assert_eq!((settings.first_new, settings.end_new), (20_000_000_000, 20_000_000_000));
}

#[test]
fn both_spellings_mean_the_same() {
    let snake = "--key_size 50 --num_reads -1 --read_only --max_written_key 9 --table_ttl_seconds -1 --batch_size 3 \
                 --read_batch_size 5 --read_back_delta_from_now 90 --num_devices 8 --num_event_types 3 --batch_write \
                 --num_indexes 2 --non_transactional_index --num_ticker_symbols 7 --num_stores 2 --num_new_coupons_per_customer 20 \
                 --create_table_name t --local_reads --cql_read_timeout_ms 120000 --concurrent_clients 2 \
                 --username u --password p --output_json_metrics --disable_yb_load_balancing_policy";
    let kebab: String = snake
        .split(' ')
        .map(|word| if word.starts_with("--") { word.replace('_', "-") } else { word.to_owned() })
        .collect::<Vec<_>>()
        .join(" ");
    assert_ne!(snake, kebab);
    assert_eq!(format!("{:?}", parse(snake)), format!("{:?}", parse(&kebab)));
    let kebab_load = LOAD.replace("value_size", "value-size").replace("num_", "num-").replace("threads_", "threads-");
    let kebab_load = kebab_load.replace("unique_keys", "unique-keys");
    assert_eq!(format!("{:?}", parse(LOAD)), format!("{:?}", parse(&kebab_load)));
    assert_eq!(parse("--drop_table_name t").drop_table_name, parse("--drop-table-name t").drop_table_name);
}

#[test]
fn workload_names_are_case_insensitive_and_wrong_ones_are_answered_with_the_list() {
    assert_eq!(parse("--workload cassandratimeseries").workload, WorkloadKind::Timeseries);
    assert_eq!(parse("--workload CASSANDRABATCHKEYVALUE").workload, WorkloadKind::BatchKeyValue);
    let error = try_parse("--workload RedisKeyValue").unwrap_err().to_string();
    assert!(error.contains("CassandraRangeKeyValue"), "{error}");
}

#[test]
fn each_workload_has_the_defaults_of_the_published_client() {
    let settings = |name: &str| parse(&format!("--workload {name}")).settings().unwrap();
    for (name, readers, writers) in [
        ("CassandraTransactionalKeyValue", 24, 2),
        ("CassandraTransactionalRestartRead", 6, 12),
        ("CassandraPersonalization", 24, 2),
        ("CassandraStockTicker", 32, 4),
        ("CassandraUserId", 24, 2),
        ("CassandraBatchTimeseries", 2, 16),
        ("CassandraSecondaryIndex", 24, 2),
        ("CassandraUniqueSecondaryIndex", 24, 2),
        ("CassandraInserts", 2, 2),
        ("CassandraEventData", 2, 16),
    ] {
        let settings = settings(name);
        assert_eq!((settings.readers, settings.writers), (readers, writers), "{name}");
    }
    assert_eq!(settings("CassandraTransactionalRestartRead").end_new, 10);
    assert_eq!(settings("CassandraTransactionalKeyValue").end_new, 2_000_000);
    assert_eq!(settings("CassandraBatchTimeseries").shape.batch_size, 500);
    assert_eq!(settings("CassandraBatchKeyValue").shape.batch_size, 10);
    assert_eq!((settings("CassandraStockTicker").ttl_s, settings("CassandraUserId").ttl_s), (Some(86_400), None));
    let coupons = parse("--workload CassandraPersonalization --num_stores 4 --num_new_coupons_per_customer 150");
    assert_eq!(coupons.settings().unwrap().shape.coupons_per_store, 37);
}

#[test]
fn workloads_with_indexes_have_the_options_of_the_published_client() {
    let shape = |line: &str| parse(line).settings().unwrap().shape;
    let plain = shape("--workload CassandraInserts");
    assert_eq!(plain.indexes, IndexShape { count: 0, is_transactional: true });
    assert_eq!((plain.has_batches, plain.batch_size), (false, 1));
    let indexed = shape("--workload CassandraInserts --num_indexes 3 --non_transactional_index --batch_write");
    assert_eq!(indexed.indexes, IndexShape { count: 3, is_transactional: false });
    assert!(indexed.has_batches);
    assert_eq!(shape("--workload CassandraSecondaryIndex --batch_write --batch_size 7").batch_size, 7);
    assert_eq!(shape("--workload CassandraUniqueSecondaryIndex --batch_write").batch_size, 1);
    let events = parse("--workload CassandraEventData");
    let settings = events.settings().unwrap();
    assert_eq!((settings.ttl_s, settings.preload), (Some(86_400), 0));
    let DataShape { batch_size, read_batch_size, read_span, devices, event_types, .. } = settings.shape;
    assert_eq!((batch_size, read_batch_size, read_span, devices, event_types), (25, 25, 180, 100, 100));
    assert_eq!(shape("--workload CassandraBatchTimeseries").read_batch_size, 100);
    assert_eq!(events.workload.value_size(events.value_size), 3_000);
    assert_eq!(WorkloadKind::Inserts.value_size(None), 256);
    assert_eq!(WorkloadKind::EventData.value_size(Some(64)), 64);
}

#[test]
fn in_flight_is_shared_in_proportion_and_reaches_the_total() {
    let settings = parse("--in-flight 64 --num_threads_write 0 --nouuid --max_written_key 9").settings().unwrap();
    assert_eq!((settings.writers, settings.readers), (0, 64));
    let settings = parse("--in-flight 256 --num_threads_read 0").settings().unwrap();
    assert_eq!((settings.writers, settings.readers), (256, 0));
    let settings = parse("--in-flight 34 --num_threads_write 32 --num_threads_read 2").settings().unwrap();
    assert_eq!((settings.writers, settings.readers), (32, 2));
    let settings = parse("--in-flight 26").settings().unwrap();
    assert_eq!((settings.writers, settings.readers), (2, 24));
}

#[test]
fn a_run_without_writers_loads_keys_first_unless_told_which_exist() {
    let settings = parse("--num_threads_write 0 --num_unique_keys 5000").settings().unwrap();
    assert_eq!((settings.preload, settings.first_new), (5_000, 0));
    let settings = parse("--read_only --uuid run --max_written_key 99").settings().unwrap();
    assert_eq!((settings.preload, settings.first_new, settings.writers), (0, 100, 0));
}

#[test]
fn what_cannot_work_is_refused_with_the_limit() {
    for (line, part) in [
        ("--value_size 8", "16 bytes"),
        ("--rate 0", "--rate"),
        ("--num_threads_read 0 --num_threads_write 0", "neither"),
        ("--nouuid --read_only --num_unique_keys -1", "--max_written_key"),
        ("--read_only", "--nouuid or --uuid"),
        ("--max_written_key 9 --num_threads_write 0", "--nouuid or --uuid"),
        ("--max_written_key 18446744073709551615 --nouuid --read_only", "--max_written_key 18446744073709551615"),
        ("--client pipelined --workload CassandraTimeseries", "pipelined"),
        ("--batch_size 0", "at least 1"),
        ("--num_stores 0", "at least 1"),
        ("--num_devices 0", "at least 1"),
        ("--num_event_types 0", "at least 1"),
        ("--read_back_delta_from_now 0", "at least 1"),
        ("--num_stores 200", "--num_new_coupons_per_customer"),
        ("--read_batch_size 3000000000", "2147483648"),
    ] {
        let error = parse(line).settings().unwrap_err().to_string();
        assert!(error.contains(part), "{line}: {error}");
    }
    assert!(try_parse("--num_writes -2").is_err());
    assert!(try_parse("--popularity recent:0").is_err());
}

#[test]
fn durations_and_popularity_have_units() {
    assert_eq!(parse_duration("90").unwrap(), Duration::from_secs(90));
    assert_eq!(parse_duration("15m").unwrap(), Duration::from_secs(900));
    assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
    assert!(parse_duration("5 weeks").is_err());
    assert_eq!("recent:10%".parse(), Ok(Popularity::Recent { percent: 10.0 }));
    assert_eq!("Uniform".parse(), Ok(Popularity::Uniform));
}

#[test]
fn endless_counts() {
    let settings = parse("--num_writes -1 --num_reads -1 --num_unique_keys -1").settings().unwrap();
    assert_eq!((settings.writes, settings.reads), (None, None));
    let settings = parse("--duration 10s").settings().unwrap();
    assert_eq!((settings.writes, settings.reads), (None, None));
}

#[test]
fn contact_points_get_a_port() {
    assert_eq!(with_port("10.0.0.1"), "10.0.0.1:9042");
    assert_eq!(with_port("10.0.0.1:9142"), "10.0.0.1:9142");
    assert_eq!(with_port("::1"), "[::1]:9042");
    assert_eq!(with_port("[::1]:9142"), "[::1]:9142");
    assert_eq!(with_port("db.example"), "db.example:9042");
}
