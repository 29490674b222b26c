//! Values as text on a page: numbers with separators, sizes, rates, times, states in colour.
//!
//! Always true: colour is never the only sign of a state; there is always a word.

use diorite_base::text::{NOTHING, bytes, duration};
use maud::{Markup, html};

/// `12,345`
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `0.5`, `7.5`, `12`, `12,345`: two or three digits of a number that need not be whole.
pub(super) fn decimal(number: f64) -> String {
    match number.abs() {
        below if below < 0.005 => "0".to_owned(),
        below if below < 1.0 => trimmed(format!("{number:.2}")),
        below if below < 10.0 => trimmed(format!("{number:.1}")),
        _ => count(number.round().max(0.0) as u64),
    }
}

fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `1.5 GiB`
pub(super) fn size(number: u64) -> String {
    bytes(number as f64)
}

/// `1.5 MiB/s`
pub(super) fn byte_rate(number: f64) -> String {
    format!("{}/s", bytes(number))
}

/// `12 µs`, `3.4 ms`, `1.2 s`
pub(super) fn latency(seconds: f64) -> String {
    match seconds {
        none if none <= 0.0 => "0".to_owned(),
        short if short < 0.001 => format!("{:.0} µs", short * 1e6),
        short if short < 0.01 => format!("{:.2} ms", short * 1e3),
        short if short < 0.1 => format!("{:.1} ms", short * 1e3),
        short if short < 1.0 => format!("{:.0} ms", short * 1e3),
        long => format!("{long:.2} s"),
    }
}

/// `300 ms`, `12 s ago`
pub(super) fn ago(milliseconds: u64) -> String {
    match milliseconds {
        0 => "now".to_owned(),
        short if short < 1_000 => format!("{short} ms ago"),
        long => format!("{} ago", duration(long / 1_000)),
    }
}

/// The tone of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// The state is as it should be.
    Good,
    /// The state needs attention.
    Warning,
    /// Something is wrong.
    Bad,
    /// Neither good nor bad.
    Plain,
}

impl Tone {
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warn",
            Self::Bad => "bad",
            Self::Plain => "plain",
        }
    }
}

/// A word with a dot in the colour of its tone.
pub(super) fn badge(tone: Tone, text: impl AsRef<str>) -> Markup {
    html! { span class=(format!("badge {}", tone.class())) { (text.as_ref()) } }
}

pub(super) fn text(value: impl ToString) -> Markup {
    html! { (value.to_string()) }
}

pub(super) fn nothing() -> Markup {
    html! { span.dim { (NOTHING) } }
}

/// The value, or a dash if there is none.
pub(super) fn optional<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> Markup {
    match value {
        Some(value) => text(show(value)),
        None => nothing(),
    }
}

/// The used share, with a bar.
pub(super) fn share(used: u64, total: u64, label: &str) -> Markup {
    let percent = (used as f64 / total.max(1) as f64 * 100.0).min(100.0);
    let tone = match percent {
        full if full >= 90.0 => Tone::Bad,
        high if high >= 75.0 => Tone::Warning,
        _ => Tone::Plain,
    };
    html! {
        span.share {
            progress class=(tone.class()) value=(format!("{percent:.1}")) max="100" title=(format!("{percent:.0} %")) aria-label=(label) {}
            span { (label) }
        }
    }
}

/// A heading with the content below it.
pub(super) fn section(title: &str, content: Markup) -> Markup {
    html! { section { h2 { (title) } (content) } }
}

/// A number with its name.
pub(super) fn tile(name: &str, value: Markup, note: Option<Markup>) -> Markup {
    html! { div.tile { dt { (name) } dd { (value) } @if let Some(note) = note { dd.note { (note) } } } }
}

/// Values, each with its name.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! { dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(count), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!(
            [0.0, 0.5, 0.254, 7.04, 7.46, 12.4, 12_345.6].map(decimal),
            ["0", "0.5", "0.25", "7", "7.5", "12", "12,346"]
        );
        assert_eq!(
            [0.0, 0.000_012, 0.003_4, 0.045_6, 0.45, 1.234].map(latency),
            ["0", "12 µs", "3.40 ms", "45.6 ms", "450 ms", "1.23 s"]
        );
        assert_eq!([0, 250, 61_000].map(ago), ["now", "250 ms ago", "1 min 1 s ago"]);
    }
}
