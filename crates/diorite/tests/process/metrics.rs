//! The storage options are in force and can be seen: as configuration, and as metrics that move when they should.

use crate::client::Client;
use crate::server::{Server, wait_for};
use diorite_cql::protocol::Value;

/// The value of a metric, by its name and labels as they are printed.
fn metric(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics").unwrap();
    assert!(text.trim_end().ends_with("# EOF"), "OpenMetrics ends with EOF");
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no metric {name} in\n{text}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn load(client: &mut Client, rows: usize) {
    let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)");
    let mut random = diorite_base::random::SplitMix64::new(3);
    for batch in (0..rows).collect::<Vec<_>>().chunks(200) {
        for (stream, n) in batch.iter().enumerate() {
            let value: Vec<u8> =
                (0..128).flat_map(|_| diorite_base::random::Random::next_u64(&mut random).to_le_bytes()).collect();
            let key = format!("key:{n}");
            client.execute(stream as i16, &insert.id, &[Value::Set(key.as_bytes()), Value::Set(&value)]);
        }
        client.flush().unwrap();
        for _ in batch {
            client.receive().unwrap();
        }
    }
}

#[test]
fn cache_bloom_memtables_flushes_and_disks_are_measured() {
    let home = tempfile::tempdir().unwrap();
    let options = ["--memory-limit", "128MiB", "--replay-limit", "16MiB", "--compaction-rate", "64MiB"];
    let server = Server::start(home.path(), &options);
    let mut client = Client::connect(&server.address).unwrap();
    client.run("CREATE KEYSPACE IF NOT EXISTS ks");
    // Filters are asked for: else most of the data has none.
    client.run("CREATE TABLE IF NOT EXISTS ks.t (k text PRIMARY KEY, v blob) WITH bloom_filter_fp_chance = 0.01");
    load(&mut client, 60_000);

    assert_eq!(metric(&server, "diorite_background_write_quota_bytes"), (64 << 20) as f64);
    assert_eq!(metric(&server, "diorite_block_cache_limit_bytes"), (64 << 20) as f64);
    assert!(metric(&server, "diorite_memtable_used_bytes") <= metric(&server, "diorite_memtable_limit_bytes") * 2.0);
    // What is over the limits is flushed beside the writes.
    wait_for("flushed bytes", || metric(&server, "diorite_background_written_bytes_total{by=\"flush\"}") > 1e6);
    wait_for("a flush", || metric(&server, "diorite_flushes_total") >= 1.0);
    wait_for("files", || metric(&server, "diorite_sstable_size_bytes") > 1e6);
    for pool in ["flush", "small", "large"] {
        assert!(metric(&server, &format!("diorite_background_threads{{pool=\"{pool}\"}}")) >= 1.0);
        assert!(metric(&server, &format!("diorite_background_running{{pool=\"{pool}\"}}")) >= 0.0);
    }
    let disk = format!("{{disk=\"{}\"}}", home.path().display());
    assert_eq!(metric(&server, &format!("diorite_disk_tablets{disk}")), 9.0);
    wait_for("files of the disk", || metric(&server, &format!("diorite_disk_sstable_size_bytes{disk}")) > 1e6);
    assert_eq!(metric(&server, &format!("diorite_disk_full{disk}")), 0.0);

    let select = client.prepare("SELECT v FROM ks.t WHERE k = ?");
    // Filters answer for files, not for what has not been flushed yet.
    wait_for("most keys that are not there are found out by filters", || {
        for n in 0..2_000 {
            // Keys that are there, and as many that are not.
            let key = if n % 2 == 0 { format!("key:{n}") } else { format!("none:{n}") };
            client.execute(0, &select.id, &[Value::Set(key.as_bytes())]);
            client.flush().unwrap();
            client.receive().unwrap();
        }
        metric(&server, "diorite_bloom_checks_total{answer=\"negative\"}") > 500.0
    });
    assert!(metric(&server, "diorite_block_cache_hits_total{block=\"data\"}") > 0.0);
    for block in ["data", "index", "filter"] {
        // Indexes and filters of the newest files are pinned once and then used without asking the cache.
        let hits = metric(&server, &format!("diorite_block_cache_hits_total{{block=\"{block}\"}}"));
        let misses = metric(&server, &format!("diorite_block_cache_misses_total{{block=\"{block}\"}}"));
        assert!(hits + misses > 0.0, "{block}");
    }
    assert!(metric(&server, "diorite_cql_requests_total{kind=\"execute\"}") >= 62_000.0);
}

#[test]
fn the_configuration_in_force_is_shown() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--durability", "interval:50", "--bloom-bits", "9"]);
    let shown = server.get("/api/v1/config").unwrap();
    for expected in
        ["\"durability\":\"interval:50\"", "\"bloom_bits\":9.0", "\"tablets_per_node\":8", "\"memory_limit\":"]
    {
        assert!(shown.contains(expected), "{expected} in {shown}");
    }
}
