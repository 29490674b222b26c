//! The little HTTP that is needed to ask a node how it is, and to tell it what is wanted.
//!
//! Always true: a question whose answer does not come within two seconds, or is not 200, has no answer (`None`); an order is waited for longer, and
//! says why it was not followed; at most 16 MiB are read.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::HTTP_PORT;

const PATIENCE: Duration = Duration::from_secs(2);
/// An order may have to wait until the catalog is led again.
const ORDER_PATIENCE: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// The body of the node's answer to `GET path`.
pub async fn get(address: IpAddr, path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = tokio::time::timeout(PATIENCE, ask(address, &request)).await.ok()?.ok()?;
    body(&answer).map(str::to_owned)
}

/// The body of the node's answer to `POST path` with a body of JSON; the error is in words.
pub async fn post(address: IpAddr, path: &str, json: &str) -> Result<String, String> {
    let length = json.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{json}"
    );
    let answer = match tokio::time::timeout(ORDER_PATIENCE, ask(address, &request)).await {
        Ok(answer) => answer.map_err(|error| format!("{address}: {error}"))?,
        Err(_) => return Err(format!("{address}: no answer within {} s", ORDER_PATIENCE.as_secs())),
    };
    body(&answer).map(str::to_owned).ok_or_else(|| {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        format!("{address}: {} {body}", head.lines().next().unwrap_or("an empty answer"))
    })
}

/// All that the node answers to a request.
async fn ask(address: IpAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(SocketAddr::new(address, HTTP_PORT)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    String::from_utf8(answer).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
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

    #[tokio::test]
    async fn an_order_is_sent_whole_and_a_refusal_says_why() {
        let address: IpAddr = "127.77.0.9".parse().expect("an address");
        let listener = tokio::net::TcpListener::bind((address, HTTP_PORT)).await.expect("a free port");
        let answers = ["HTTP/1.1 200 OK\r\n\r\n[]", "HTTP/1.1 409 Conflict\r\n\r\nno quorum"];
        let server = tokio::spawn(async move {
            let mut seen = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = vec![0; 4_096];
                let length = stream.read(&mut request).await.expect("a request");
                seen.push(String::from_utf8_lossy(&request[..length]).into_owned());
                stream.write_all(answer.as_bytes()).await.expect("sent");
            }
            seen
        });
        assert_eq!(post(address, "/api/v1/settings", "{\"a\":1}").await.as_deref(), Ok("[]"));
        let refused = post(address, "/api/v1/settings", "{}").await.expect_err("a conflict");
        assert!(refused.contains("409 Conflict no quorum"), "{refused}");
        let seen = server.await.expect("no panic");
        assert!(seen[0].starts_with("POST /api/v1/settings HTTP/1.1\r\n"), "{}", seen[0]);
        assert!(seen[0].contains("Content-Length: 7\r\n") && seen[0].ends_with("\r\n\r\n{\"a\":1}"), "{}", seen[0]);
    }

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
