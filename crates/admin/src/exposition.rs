//! The two text formats of metrics: OpenMetrics for clients that accept it, such as Prometheus, and Prometheus' older
//! format for all others.
//!
//! Always true: both contain the same metrics; both end with `# EOF`, which is a comment in the older format, so that a
//! truncated answer is recognised.

use axum::http::HeaderValue;

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Exposition {
    /// The format for a client with this `Accept` header.
    pub(crate) fn accepted(accept: Option<&HeaderValue>) -> Self {
        let accepts = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        if accepts.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts OpenMetrics text into this format.
    pub(crate) fn convert(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Text => to_text(&text),
        }
    }
}

/// In the older format a family has the name of its lines; there are no units and no info metrics.
fn to_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // The help line before the type, which determines the name of the family.
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                out.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with("# UNIT ") {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_METRICS: &str = "# HELP d_reads Reads.\n# TYPE d_reads counter\nd_reads_total{t=\"a\"} 7\n\
        # HELP d_time_seconds Times.\n# TYPE d_time_seconds histogram\n# UNIT d_time_seconds seconds\n\
        d_time_seconds_sum 0.5\nd_time_seconds_count 1\nd_time_seconds_bucket{le=\"+Inf\"} 1\n\
        # HELP d_build The version.\n# TYPE d_build info\nd_build_info{version=\"1\"} 1\n# EOF\n";

    #[test]
    fn the_older_format_names_families_as_their_lines() {
        let text = Exposition::Text.convert(OPEN_METRICS.to_owned());
        let wanted = "# HELP d_reads_total Reads.\n# TYPE d_reads_total counter\nd_reads_total{t=\"a\"} 7\n\
            # HELP d_time_seconds Times.\n# TYPE d_time_seconds histogram\n\
            d_time_seconds_sum 0.5\nd_time_seconds_count 1\nd_time_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP d_build_info The version.\n# TYPE d_build_info gauge\nd_build_info{version=\"1\"} 1\n# EOF\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn open_metrics_is_for_those_who_ask_for_it() {
        let accepted = |accept: &'static str| Exposition::accepted(Some(&HeaderValue::from_static(accept)));
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(accepted(prometheus), Exposition::OpenMetrics);
        assert_eq!(Exposition::OpenMetrics.convert(OPEN_METRICS.to_owned()), OPEN_METRICS);
        assert_eq!((accepted("*/*"), Exposition::accepted(None)), (Exposition::Text, Exposition::Text));
    }
}
