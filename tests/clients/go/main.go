// Drives the gocql driver, unmodified, against the server at the address given: one line per check, `ok <check>` or
// `not ok <check>: <why>`, and a non-zero exit when a check failed.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

const keyspace = "go_checks"

var (
	address string
	session *gocql.Session
	failed  bool
)

// join is errors.Join, for compilers older than it.
func join(all ...error) error {
	var text []string
	for _, err := range all {
		if err != nil {
			text = append(text, err.Error())
		}
	}
	if text == nil {
		return nil
	}
	return errors.New(strings.Join(text, "; "))
}

func check(name string, run func() error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			failed = true
			fmt.Printf("not ok %s: panic: %v\n", name, panicked)
		}
	}()
	if err := run(); err != nil {
		failed = true
		fmt.Printf("not ok %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func cluster(version int) *gocql.ClusterConfig {
	config := gocql.NewCluster(address)
	config.ProtoVersion = version
	config.Timeout = 60 * time.Second
	config.ConnectTimeout = 30 * time.Second
	config.Consistency = gocql.Quorum
	config.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	return config
}

func execute(statement string, values ...interface{}) error {
	if err := session.Query(statement, values...).Exec(); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func executeAll(statements ...string) error {
	for _, statement := range statements {
		if err := execute(statement); err != nil {
			return err
		}
	}
	return nil
}

func connect() error {
	plain, err := cluster(4).CreateSession()
	if err != nil {
		return err
	}
	defer plain.Close()
	for _, statement := range []string{
		"DROP KEYSPACE IF EXISTS " + keyspace,
		"CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
	} {
		if err := plain.Query(statement).Exec(); err != nil {
			return err
		}
	}
	config := cluster(4)
	config.Keyspace = keyspace
	session, err = config.CreateSession()
	return err
}

func metadata() error {
	if err := execute("CREATE TABLE events (a text, b int, c timestamp, d uuid, s text static, v map<text, frozen<list<int>>>, " +
		"PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)"); err != nil {
		return err
	}
	// The driver keeps what it knew until the schema event arrives, which it waits a second for more of.
	var table *gocql.TableMetadata
	for deadline := time.Now().Add(60 * time.Second); table == nil; time.Sleep(50 * time.Millisecond) {
		found, err := session.KeyspaceMetadata(keyspace)
		if err != nil {
			return err
		}
		if table = found.Tables["events"]; table == nil && time.Now().After(deadline) {
			return fmt.Errorf("no table events within 60 s in %v", found.Tables)
		}
	}
	var partition, clustering []string
	for _, column := range table.PartitionKey {
		partition = append(partition, column.Name)
	}
	for _, column := range table.ClusteringColumns {
		order := "asc"
		if column.Order == gocql.DESC {
			order = "desc"
		}
		clustering = append(clustering, column.Name+" "+order)
	}
	if !reflect.DeepEqual(partition, []string{"a", "b"}) || !reflect.DeepEqual(clustering, []string{"c desc", "d asc"}) {
		return fmt.Errorf("keys are %v and %v", partition, clustering)
	}
	if kind := table.Columns["s"].Kind; kind != gocql.ColumnStatic {
		return fmt.Errorf("s is %v, not static", kind)
	}
	if kind := table.Columns["v"].Type.Type(); kind != gocql.TypeMap {
		return fmt.Errorf("v is %v, not a map", kind)
	}
	if len(table.Columns) != 6 {
		return fmt.Errorf("%d columns, not 6", len(table.Columns))
	}
	return nil
}

func roundTrip(column, cqlType string, value interface{}, id int) error {
	if err := execute("INSERT INTO scalars (id, "+column+") VALUES (?, ?)", id, value); err != nil {
		return err
	}
	found := reflect.New(reflect.TypeOf(value))
	if err := session.Query("SELECT "+column+" FROM scalars WHERE id = ?", id).Scan(found.Interface()); err != nil {
		return fmt.Errorf("%s: %w", cqlType, err)
	}
	if got := found.Elem().Interface(); !equal(got, value) {
		return fmt.Errorf("%s: wrote %v, read %v", cqlType, value, got)
	}
	return nil
}

func equal(a, b interface{}) bool {
	switch x := a.(type) {
	case *big.Int:
		return x.Cmp(b.(*big.Int)) == 0
	case *inf.Dec:
		return x.Cmp(b.(*inf.Dec)) == 0 && x.Scale() == b.(*inf.Dec).Scale()
	case time.Time:
		return x.Equal(b.(time.Time))
	case net.IP:
		return x.Equal(b.(net.IP))
	case []byte:
		return bytes.Equal(x, b.([]byte))
	}
	return reflect.DeepEqual(a, b)
}

func scalars() error {
	huge, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	timeUUID, _ := gocql.ParseUUID("50554d6e-29bb-11e5-b345-feff819cdc9f")
	randomUUID, _ := gocql.ParseUUID("ffffffff-ffff-4fff-bfff-ffffffffffff")
	values := map[string][]interface{}{
		"ascii":     {"", "plain"},
		"bigint":    {int64(0), int64(math.MaxInt64), int64(math.MinInt64)},
		"blob":      {[]byte{0, 255}, bytes.Repeat([]byte{7}, 100_000)},
		"boolean":   {true, false},
		"date":      {time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)},
		"decimal":   {inf.NewDec(0, 0), inf.NewDecBig(huge, 10), inf.NewDec(1, -40)},
		"double":    {0.0, -1.5e300, math.Inf(1)},
		"duration":  {gocql.Duration{}, gocql.Duration{Months: 14, Days: 3, Nanoseconds: 1e9}, gocql.Duration{Months: -1, Days: -2, Nanoseconds: -3}},
		"float":     {float32(1.5), float32(math.Inf(-1))},
		"inet":      {net.ParseIP("127.0.0.1").To4(), net.ParseIP("2001:db8::1")},
		"int":       {int32(math.MaxInt32), int32(math.MinInt32)},
		"smallint":  {int16(math.MaxInt16), int16(math.MinInt16)},
		"text":      {"größer 水 🪨"},
		"time":      {time.Duration(0), 24*time.Hour - 1},
		"timestamp": {time.UnixMilli(0).UTC(), time.UnixMilli(1769903999999).UTC(), time.UnixMilli(-2208988800000).UTC()},
		"timeuuid":  {timeUUID},
		"tinyint":   {int8(127), int8(-128)},
		"uuid":      {gocql.UUID{}, randomUUID},
		"varchar":   {"varchar"},
		"varint":    {big.NewInt(0), big.NewInt(-256), huge},
	}
	var names []string
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	columns := ""
	for _, name := range names {
		columns += ", c_" + name + " " + name
	}
	if err := execute("CREATE TABLE scalars (id int PRIMARY KEY" + columns + ")"); err != nil {
		return err
	}
	id := 0
	for _, name := range names {
		for _, value := range values[name] {
			id++
			if err := roundTrip("c_"+name, name, value, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func nulls() error {
	if err := execute("INSERT INTO scalars (id, c_int, c_text, c_uuid) VALUES (?, ?, ?, ?)", 10_000, nil, nil, nil); err != nil {
		return err
	}
	number, text := new(int32), new(string)
	var id *gocql.UUID
	if err := session.Query("SELECT c_int, c_text, c_uuid FROM scalars WHERE id = ?", 10_000).Scan(&number, &text, &id); err != nil {
		return err
	}
	if number != nil || text != nil || id != nil {
		return fmt.Errorf("read %v %v %v instead of nulls", number, text, id)
	}
	return nil
}

func collections() error {
	if err := execute("CREATE TABLE collections (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>, " +
		"fl frozen<list<int>>, fm frozen<map<text, bigint>>, deep map<text, frozen<list<frozen<set<int>>>>>)"); err != nil {
		return err
	}
	list, set, table := []int32{3, 1, 3}, []string{"a", "b"}, map[string]int64{"k": 1 << 40}
	deep := map[string][][]int32{"d": {{1, 2}, {3}}}
	if err := execute("INSERT INTO collections (id, l, s, m, fl, fm, deep) VALUES (?, ?, ?, ?, ?, ?, ?)", 1, list, set, table, list, table, deep); err != nil {
		return err
	}
	var (
		gotList, gotFrozen []int32
		gotSet             []string
		gotMap, gotFrozenM map[string]int64
		gotDeep            map[string][][]int32
	)
	query := "SELECT l, s, m, fl, fm, deep FROM collections WHERE id = ?"
	if err := session.Query(query, 1).Scan(&gotList, &gotSet, &gotMap, &gotFrozen, &gotFrozenM, &gotDeep); err != nil {
		return err
	}
	got := []interface{}{gotList, gotSet, gotMap, gotFrozen, gotFrozenM, gotDeep}
	if want := []interface{}{list, set, table, list, table, deep}; !reflect.DeepEqual(got, want) {
		return fmt.Errorf("wrote %v, read %v", want, got)
	}
	if err := execute("UPDATE collections SET l = l + ?, s = s + ?, m[?] = ? WHERE id = ?", []int32{9}, []string{"c"}, "n", int64(5), 1); err != nil {
		return err
	}
	if err := session.Query(query, 1).Scan(&gotList, &gotSet, &gotMap, &gotFrozen, &gotFrozenM, &gotDeep); err != nil {
		return err
	}
	if len(gotList) != 4 || len(gotSet) != 3 || gotMap["n"] != 5 {
		return fmt.Errorf("after the update: %v %v %v", gotList, gotSet, gotMap)
	}
	if err := execute("INSERT INTO collections (id, l, s, m, fl, fm, deep) VALUES (?, ?, ?, ?, ?, ?, ?)", 1, nil, nil, nil, nil, nil, nil); err != nil {
		return err
	}
	if err := session.Query(query, 1).Scan(&gotList, &gotSet, &gotMap, &gotFrozen, &gotFrozenM, &gotDeep); err != nil {
		return err
	}
	if gotList != nil || gotSet != nil || len(gotMap) != 0 || gotFrozen != nil || len(gotFrozenM) != 0 || len(gotDeep) != 0 {
		return fmt.Errorf("after nulls: %v %v %v %v %v %v", gotList, gotSet, gotMap, gotFrozen, gotFrozenM, gotDeep)
	}
	return nil
}

func paging() error {
	if err := execute("CREATE TABLE paged (p int, c int, v text, PRIMARY KEY (p, c))"); err != nil {
		return err
	}
	const rows = 5_500
	for first := 0; first < rows; first += 100 {
		batch := session.NewBatch(gocql.UnloggedBatch)
		for n := first; n < first+100; n++ {
			batch.Query("INSERT INTO paged (p, c, v) VALUES (?, ?, ?)", n%3, n, fmt.Sprint("value ", n))
		}
		if err := session.ExecuteBatch(batch); err != nil {
			return err
		}
	}
	for _, size := range []int{500, 5_000} {
		seen := map[int]bool{}
		var p, c int
		var v string
		iterator := session.Query("SELECT p, c, v FROM paged").PageSize(size).Iter()
		for iterator.Scan(&p, &c, &v) {
			if seen[c] || p != c%3 || v != fmt.Sprint("value ", c) {
				return fmt.Errorf("row %d %d %q is wrong or came twice", p, c, v)
			}
			seen[c] = true
		}
		if err := iterator.Close(); err != nil {
			return err
		}
		if len(seen) != rows {
			return fmt.Errorf("pages of %d gave %d rows, not %d", size, len(seen), rows)
		}
	}
	return nil
}

func batches() error {
	if err := executeAll("CREATE TABLE batched (k int PRIMARY KEY, v text)", "CREATE TABLE counted (k int PRIMARY KEY, n counter)"); err != nil {
		return err
	}
	for _, kind := range []gocql.BatchType{gocql.LoggedBatch, gocql.UnloggedBatch} {
		batch := session.NewBatch(kind)
		for k := 0; k < 50; k++ {
			batch.Query("INSERT INTO batched (k, v) VALUES (?, ?)", k, fmt.Sprint(kind))
		}
		batch.Query("DELETE FROM batched WHERE k = 0")
		if err := session.ExecuteBatch(batch); err != nil {
			return err
		}
		var count int
		if err := session.Query("SELECT COUNT(*) FROM batched").Scan(&count); err != nil || count != 49 {
			return fmt.Errorf("%d rows after batch %v: %v", count, kind, err)
		}
	}
	for round := 0; round < 2; round++ {
		batch := session.NewBatch(gocql.CounterBatch)
		for k := 0; k < 5; k++ {
			batch.Query("UPDATE counted SET n = n + ? WHERE k = ?", int64(k), k)
		}
		if err := session.ExecuteBatch(batch); err != nil {
			return err
		}
	}
	var n int64
	if err := session.Query("SELECT n FROM counted WHERE k = 4").Scan(&n); err != nil || n != 8 {
		return fmt.Errorf("counter is %d: %v", n, err)
	}
	return nil
}

func conditions() error {
	if err := execute("CREATE TABLE conditions (k int PRIMARY KEY, v text, n int)"); err != nil {
		return err
	}
	apply := func(want bool, statement string, values ...interface{}) error {
		row := map[string]interface{}{}
		applied, err := session.Query(statement, values...).MapScanCAS(row)
		if err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
		if applied != want {
			return fmt.Errorf("%s: applied is %v, row %v", statement, applied, row)
		}
		if !want && strings.HasPrefix(statement, "INSERT") && (row["v"] != "first" || row["n"] != 1) {
			return fmt.Errorf("%s: present row is %v", statement, row)
		}
		return nil
	}
	return join(
		apply(true, "INSERT INTO conditions (k, v, n) VALUES (?, ?, ?) IF NOT EXISTS", 1, "first", 1),
		apply(false, "INSERT INTO conditions (k, v, n) VALUES (?, ?, ?) IF NOT EXISTS", 1, "second", 2),
		apply(false, "UPDATE conditions SET v = ? WHERE k = ? IF n = ?", "third", 1, 7),
		apply(true, "UPDATE conditions SET v = ? WHERE k = ? IF n = ?", "third", 1, 1),
		apply(false, "UPDATE conditions SET v = ? WHERE k = ? IF EXISTS", "ghost", 2),
		apply(false, "DELETE FROM conditions WHERE k = ? IF EXISTS", 2),
		apply(true, "DELETE FROM conditions WHERE k = ? IF EXISTS", 1),
	)
}

func requestErrors() error {
	code := func(want int, statement string) error {
		var refusal gocql.RequestError
		err := session.Query(statement).Exec()
		if !errors.As(err, &refusal) {
			return fmt.Errorf("%s: %v", statement, err)
		}
		if refusal.Code() != want {
			return fmt.Errorf("%s: code %#x (%s), not %#x", statement, refusal.Code(), refusal.Message(), want)
		}
		return nil
	}
	if err := execute("CREATE TABLE twice (k int PRIMARY KEY)"); err != nil {
		return err
	}
	return join(
		code(gocql.ErrCodeSyntax, "SELEKT"),
		code(gocql.ErrCodeInvalid, "SELECT * FROM absent"),
		code(gocql.ErrCodeInvalid, "SELECT absent FROM twice"),
		code(gocql.ErrCodeAlreadyExists, "CREATE TABLE twice (k int PRIMARY KEY)"),
		code(gocql.ErrCodeAlreadyExists, "CREATE KEYSPACE "+keyspace+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"),
	)
}

func afterAlter() error {
	if err := execute("CREATE TABLE evolving (k int PRIMARY KEY, v int)"); err != nil {
		return err
	}
	insert := func(v int) error { return execute("INSERT INTO evolving (k, v) VALUES (?, ?)", 1, v) }
	read := func() (map[string]interface{}, error) {
		row := map[string]interface{}{}
		err := session.Query("SELECT * FROM evolving WHERE k = ?", 1).MapScan(row)
		return row, err
	}
	if err := insert(1); err != nil {
		return err
	}
	if row, err := read(); err != nil || len(row) != 2 {
		return fmt.Errorf("before: %v %v", row, err)
	}
	if err := execute("ALTER TABLE evolving ADD a text"); err != nil {
		return err
	}
	if err := insert(2); err != nil {
		return err
	}
	row, err := read()
	if err != nil || row["v"] != 2 {
		return fmt.Errorf("after: %v %v", row, err)
	}
	return nil
}

func versions() error {
	for _, version := range []int{3, 4} {
		for _, compressor := range []gocql.Compressor{nil, gocql.SnappyCompressor{}} {
			config := cluster(version)
			config.Keyspace, config.Compressor = keyspace, compressor
			other, err := config.CreateSession()
			if err != nil {
				return fmt.Errorf("v%d %v: %w", version, compressor, err)
			}
			var text string
			err = other.Query("SELECT v FROM paged WHERE p = ? AND c = ?", 0, 3).Scan(&text)
			other.Close()
			if err != nil || text != "value 3" {
				return fmt.Errorf("v%d %v: %q %w", version, compressor, text, err)
			}
		}
	}
	return nil
}

func tracing() error {
	if err := execute("CREATE TABLE traced (k int PRIMARY KEY, v int)"); err != nil {
		return err
	}
	var shown strings.Builder
	tracer := gocql.NewTraceWriter(session, &shown)
	if err := session.Query("SELECT v FROM traced WHERE k = ?", 1).Trace(tracer).Exec(); err != nil {
		return err
	}
	for _, wanted := range []string{"Tracing session", "Primary Key Lookup on " + keyspace + ".traced", "Request complete: 0 rows"} {
		if !strings.Contains(shown.String(), wanted) {
			return fmt.Errorf("%q is not in the trace:\n%s", wanted, shown.String())
		}
	}
	return nil
}

func concurrency() error {
	if err := execute("CREATE TABLE concurrent (k int PRIMARY KEY, v int)"); err != nil {
		return err
	}
	results := make(chan error)
	for worker := 0; worker < 32; worker++ {
		go func(worker int) {
			for n := 0; n < 50; n++ {
				k, v := worker*1_000+n, 0
				if err := execute("INSERT INTO concurrent (k, v) VALUES (?, ?)", k, -k); err != nil {
					results <- err
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				err := session.Query("SELECT v FROM concurrent WHERE k = ?", k).WithContext(ctx).Scan(&v)
				cancel()
				if err != nil || v != -k {
					results <- fmt.Errorf("key %d reads %d: %w", k, v, err)
					return
				}
			}
			results <- nil
		}(worker)
	}
	var all error
	for worker := 0; worker < 32; worker++ {
		all = join(all, <-results)
	}
	return all
}

func main() {
	address = os.Args[1]
	check("connect", connect)
	if session == nil {
		os.Exit(1)
	}
	check("metadata", metadata)
	check("scalars", scalars)
	check("nulls", nulls)
	check("collections", collections)
	check("paging", paging)
	check("batches", batches)
	check("conditions", conditions)
	check("errors", requestErrors)
	check("after_alter", afterAlter)
	check("versions", versions)
	check("tracing", tracing)
	check("concurrency", concurrency)
	session.Close()
	if failed {
		os.Exit(1)
	}
}
