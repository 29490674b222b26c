//! The little HTTP that is needed to ask a node how it is.
//!
//! Always true: an answer that does not come within two seconds, or is not 200, is `None`; at most 16 MiB are read.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::HTTP_PORT;

const PATIENCE: Duration = Duration::from_secs(2);
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// The body of the node's answer to `GET path`.
pub async fn get(address: IpAddr, path: &str) -> Option<String> {
    let ask = async {
        let mut stream = TcpStream::connect(SocketAddr::new(address, HTTP_PORT)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await.ok()?;
        body(&String::from_utf8(answer).ok()?).map(str::to_owned)
    };
    tokio::time::timeout(PATIENCE, ask).await.ok().flatten()
}

/// The body of an answer with status 200.
fn body(answer: &str) -> Option<&str> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut status = head.split_ascii_whitespace().skip(1);
    (status.next() == Some("200")).then_some(body)
}

/// Whether the node serves requests.
pub async fn is_ready(address: IpAddr) -> bool {
    get(address, "/health/ready").await.is_some()
}

/// The sum of a metric over its labels, of OpenMetrics text; `None` if it is not there.
pub fn metric(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest.strip_prefix(' ')? };
        value.split_ascii_whitespace().next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_good_answer_has_a_body() {
        assert_eq!(body("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nready\n"), Some("ready\n"));
        assert_eq!(body("HTTP/1.1 503 Service Unavailable\r\n\r\nno"), None);
        assert_eq!(body("SSH-2.0"), None);
    }

    #[test]
    fn a_metric_is_summed_over_its_labels_and_not_mixed_with_longer_names() {
        let text = "# TYPE tablets gauge\ntablets{disk=\"/a } b\"} 3\ntablets{disk=\"/c\"} 4\ntablets_led 2\n# EOF\n";
        assert_eq!(metric(text, "tablets"), Some(7.0));
        assert_eq!(metric(text, "tablets_led"), Some(2.0));
        assert_eq!(metric(text, "table"), None);
    }
}
