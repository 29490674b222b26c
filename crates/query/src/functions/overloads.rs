//! Functions of fixed types, by name.
//!
//! Always true: names are looked up in lower case; underscores in them do not count. Left out: functions whose types depend on their arguments
//! ([`super::generic`]), and `token`, which depends on the table.

use super::function::{Function, Signature};
use diorite_model::types::CqlType;

fn signature(function: Function, arguments: &[CqlType], returns: CqlType) -> Signature {
    Signature { function, arguments: arguments.to_vec(), returns }
}

/// Types that `blobAs…` and `…AsBlob` exist for.
const BLOB_CONVERTIBLE: [(&str, CqlType); 20] = [
    ("ascii", CqlType::Ascii),
    ("bigint", CqlType::Bigint),
    ("boolean", CqlType::Boolean),
    ("counter", CqlType::Counter),
    ("date", CqlType::Date),
    ("decimal", CqlType::Decimal),
    ("double", CqlType::Double),
    ("duration", CqlType::Duration),
    ("float", CqlType::Float),
    ("inet", CqlType::Inet),
    ("int", CqlType::Int),
    ("smallint", CqlType::Smallint),
    ("text", CqlType::Text),
    ("varchar", CqlType::Text),
    ("time", CqlType::Time),
    ("timestamp", CqlType::Timestamp),
    ("timeuuid", CqlType::Timeuuid),
    ("tinyint", CqlType::Tinyint),
    ("uuid", CqlType::Uuid),
    ("varint", CqlType::Varint),
];

/// All overloads of a name (in lower case), except `token`, which depends on the table.
pub fn overloads(name: &str) -> Vec<Signature> {
    let moments = |sources: &[CqlType], to: CqlType| {
        sources
            .iter()
            .map(|from| signature(Function::Moment(from.clone(), to.clone()), std::slice::from_ref(from), to.clone()))
            .collect()
    };
    let plain = name.replace('_', "");
    match plain.as_str() {
        "now" | "currenttimeuuid" => vec![signature(Function::Now, &[], CqlType::Timeuuid)],
        "uuid" => vec![signature(Function::RandomUuid, &[], CqlType::Uuid)],
        "currenttimestamp" => vec![signature(Function::CurrentTimestamp, &[], CqlType::Timestamp)],
        "currentdate" => vec![signature(Function::CurrentDate, &[], CqlType::Date)],
        "currenttime" => vec![signature(Function::CurrentTime, &[], CqlType::Time)],
        "mintimeuuid" => vec![signature(Function::MinTimeuuid, &[CqlType::Timestamp], CqlType::Timeuuid)],
        "maxtimeuuid" => vec![signature(Function::MaxTimeuuid, &[CqlType::Timestamp], CqlType::Timeuuid)],
        "totimestamp" => moments(&[CqlType::Timeuuid, CqlType::Date], CqlType::Timestamp),
        "todate" => moments(&[CqlType::Timeuuid, CqlType::Timestamp], CqlType::Date),
        "totime" => moments(&[CqlType::Timeuuid], CqlType::Time),
        "tounixtimestamp" => moments(&[CqlType::Timeuuid, CqlType::Timestamp, CqlType::Date], CqlType::Bigint),
        "dateof" => moments(&[CqlType::Timeuuid], CqlType::Timestamp),
        "unixtimestampof" => moments(&[CqlType::Timeuuid], CqlType::Bigint),
        _ => blob_conversions(&plain),
    }
}

fn blob_conversions(plain: &str) -> Vec<Signature> {
    let of =
        |name: &str| BLOB_CONVERTIBLE.iter().find(|(known, _)| *known == name).map(|(_, data_type)| data_type.clone());
    if let Some(data_type) = plain.strip_suffix("asblob").and_then(of) {
        return vec![signature(Function::AsBlob, &[data_type], CqlType::Blob)];
    }
    if let Some(data_type) = plain.strip_prefix("blobas").and_then(of) {
        return vec![signature(Function::BlobAs(data_type.clone()), &[CqlType::Blob], data_type)];
    }
    Vec::new()
}

/// Names of aggregates, which are no scalar functions.
pub fn is_aggregate(name: &str) -> bool {
    matches!(name, "count" | "min" | "max" | "sum" | "avg" | "countrows" | "count_rows")
}

/// `from_json`, in either spelling.
pub fn is_from_json(name: &str) -> bool {
    name.replace('_', "").eq_ignore_ascii_case("fromjson")
}
