//! Text for people: sizes, durations and tables on a terminal.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A size in bytes, written as `512MiB`, `4.5TB`, `30MB` or a plain number; `/s` may follow where it is
/// a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_end_matches("/s");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let malformed = || format!("'{text}' is not a size such as 512MiB, 4.5TB or 30MB");
        let whole: u64 = whole.parse().map_err(|_| malformed())?;
        // Twelve decimal places resolve single bytes of a terabyte.
        let parts = 10u64.pow(u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 12).ok_or_else(malformed)?);
        let fraction: u64 = fraction.parse().map_err(|_| malformed())?;
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1_000,
            "kib" => 1 << 10,
            "m" | "mb" => 1_000_000,
            "mib" => 1 << 20,
            "g" | "gb" => 1_000_000_000,
            "gib" => 1 << 30,
            "t" | "tb" => 1_000_000_000_000,
            "tib" => 1 << 40,
            other => return Err(format!("'{other}' is not a unit of size; use KB, MiB, GB, …")),
        };
        let of_fraction = u128::from(fraction) * u128::from(factor) / u128::from(parts);
        let bytes = u128::from(whole) * u128::from(factor) + of_fraction;
        u64::try_from(bytes).map(Size).map_err(|_| format!("'{text}' is too large"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 30 && bytes % (1 << 30) == 0 => write!(f, "{}GiB", bytes >> 30),
            bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => write!(f, "{}MiB", bytes >> 20),
            bytes => write!(f, "{bytes}"),
        }
    }
}

/// `512 B`, `1.5 GiB`: a number of bytes, to two or three digits.
pub fn bytes(number: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut number = number;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{number:.0} B"),
        _ => format!("{number:.1} {}", UNITS[unit]),
    }
}

/// `12 s`, `3 min 5 s`, `2 h 10 min`, `5 d 3 h`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The text that stands for an absent value.
pub const NOTHING: &str = "–";

/// The text of a value, or [`NOTHING`].
pub fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), show)
}

/// Columns under their names, two spaces apart, one line per row.
pub fn table<const COLUMNS: usize>(
    names: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let rows: Vec<[String; COLUMNS]> = std::iter::once(names.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        assert_eq!("512MiB".parse(), Ok(Size(512 << 20)));
        assert_eq!("30MB/s".parse(), Ok(Size(30_000_000)));
        assert_eq!("7".parse(), Ok(Size(7)));
        assert_eq!("4.5TB".parse(), Ok(Size(4_500_000_000_000)));
        assert_eq!("0.25KiB".parse(), Ok(Size(256)));
        assert_eq!("1.9 GB".parse(), Ok(Size(1_900_000_000)));
        for wrong in ["", ".5TB", "1.", "1.2.3GB", "-1GB", "1.0000000000001GB"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
        assert!("7 parsecs".parse::<Size>().is_err());
        assert!("99999999999TiB".parse::<Size>().is_err());
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!((bytes(512.0), bytes(1.5 * 1_073_741_824.0)), ("512 B".into(), "1.5 GiB".into()));
        assert_eq!([5, 65, 7_800, 270_000].map(duration), ["5 s", "1 min 5 s", "2 h 10 min", "3 d 3 h"]);
        assert_eq!(table(["a", "bc"], [["é".into(), "1".into()], ["xyz".into(), "".into()]]), "a    bc\né    1\nxyz\n");
    }
}
