//! HTTP requests to a node.
//!
//! Always true: a question that is not answered within two seconds, or not with status 200, has no answer (`None`); an
//! order has thirty seconds, and its error says why it was not carried out; at most 16 MiB are read; no proxy is used.
//! Where nodes require passwords, the role and the password are those of the environment, as for `diorite admin`:
//! `DIORITE_USER` and `DIORITE_PASSWORD`.
//!
//! `ureq` carries out the requests. It blocks, so it runs on tokio's threads for blocking work. The client of `diorite
//! admin` (`admin::client`) uses `ureq` too, but tries several nodes and waits for a minute; this crate links nothing
//! of the server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use diorite_base::basic::Credentials;
use thiserror::Error;
use ureq::http::StatusCode;

use crate::HTTP_PORT;

const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);
/// An order may have to wait until the catalog has a leader again.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// Why an order was not carried out, or why that is not known.
#[derive(Debug, Error)]
pub enum HttpError {
    /// No answer, or an incomplete one.
    #[error("{address}: {error}")]
    NoAnswer { address: IpAddr, error: Box<ureq::Error> },
    /// An answer with another status than 200.
    #[error("{address}: {status} {body}")]
    Refused { address: IpAddr, status: StatusCode, body: String },
    /// The runtime is ending.
    #[error("{address}: interrupted")]
    Interrupted { address: IpAddr },
}

/// The body of the node's answer to `GET path`.
pub async fn get(address: IpAddr, path: &str) -> Option<String> {
    let url = url(address, path);
    ask(address, move || with_login(agent(QUESTION_TIMEOUT).get(url)).call()).await.ok()
}

/// The body of the node's answer to `POST path` with a body of JSON.
pub async fn post(address: IpAddr, path: &str, json: &str) -> Result<String, HttpError> {
    let (url, json) = (url(address, path), json.to_owned());
    let order = move || {
        let request = with_login(agent(ORDER_TIMEOUT).post(url));
        request.content_type("application/json").send(json)
    };
    ask(address, order).await
}

fn url(address: IpAddr, path: &str) -> String {
    format!("http://{}{path}", SocketAddr::new(address, HTTP_PORT))
}

fn with_login<B>(request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
    match (std::env::var("DIORITE_USER"), std::env::var("DIORITE_PASSWORD")) {
        (Ok(user), Ok(password)) => request.header("authorization", Credentials { user, password }.header()),
        _ => request,
    }
}

/// Keeps no connections: the node may be killed before the next request.
fn agent(timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
    config.max_idle_connections(0).proxy(None).build().new_agent()
}

type Answer = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// The body of an answer with status 200.
async fn ask(address: IpAddr, call: impl FnOnce() -> Answer + Send + 'static) -> Result<String, HttpError> {
    let asking = tokio::task::spawn_blocking(move || {
        let mut answer = call()?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string()?;
        Ok((answer.status(), body))
    });
    match asking.await.map_err(|_| HttpError::Interrupted { address })? {
        Ok((StatusCode::OK, body)) => Ok(body),
        Ok((status, body)) => Err(HttpError::Refused { address, status, body }),
        Err(error) => Err(HttpError::NoAnswer { address, error: Box::new(error) }),
    }
}

/// Whether the node serves requests.
pub async fn is_ready(address: IpAddr) -> bool {
    get(address, "/health/ready").await.is_some()
}

/// The sum of a metric over its labels, in OpenMetrics text; `None` if the text does not contain it.
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Answers one request after another, and returns what it received.
    async fn serve(address: IpAddr, answers: Vec<&'static str>) -> tokio::task::JoinHandle<Vec<String>> {
        let listener = tokio::net::TcpListener::bind((address, HTTP_PORT)).await.expect("a free port");
        tokio::spawn(async move {
            let mut seen = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let (mut request, mut piece) = (Vec::new(), [0; 4_096]);
                // The head says how long the body is; none of these is longer than one digit says.
                while !is_whole(&request) {
                    let length = stream.read(&mut piece).await.expect("a request");
                    request.extend_from_slice(&piece[..length]);
                }
                seen.push(String::from_utf8(request).expect("text").to_lowercase());
                stream.write_all(answer.as_bytes()).await.expect("sent");
            }
            seen
        })
    }

    fn is_whole(request: &[u8]) -> bool {
        let text = String::from_utf8_lossy(request).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        body.len() == length.map_or(0, |length| length.parse().expect("a length"))
    }

    #[tokio::test]
    async fn an_order_is_sent_whole_and_a_refusal_says_why() {
        let address: IpAddr = "127.77.0.9".parse().expect("an address");
        let answers = vec![
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
            "HTTP/1.1 409 Conflict\r\ncontent-length: 9\r\n\r\nno quorum",
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nready\n",
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno",
            "SSH-2.0\r\n\r\n",
        ];
        let server = serve(address, answers).await;
        assert_eq!(post(address, "/api/v1/settings", "{\"a\":1}").await.expect("an answer"), "[]");
        let refused = post(address, "/api/v1/settings", "{}").await.expect_err("a conflict").to_string();
        assert!(refused.contains("409 Conflict no quorum"), "{refused}");
        assert_eq!(get(address, "/health/ready").await.as_deref(), Some("ready\n"));
        assert_eq!(get(address, "/health/ready").await, None, "only a good answer has a body");
        assert_eq!(get(address, "/health/ready").await, None, "not HTTP");
        let seen = server.await.expect("no panic");
        assert!(seen[0].starts_with("post /api/v1/settings http/1.1\r\n"), "{}", seen[0]);
        assert!(seen[0].contains("content-type: application/json\r\n"), "{}", seen[0]);
        assert!(seen[0].ends_with("\r\n\r\n{\"a\":1}"), "{}", seen[0]);
        assert_eq!(get(address, "/health/ready").await, None, "nobody listens");
    }

    #[test]
    fn a_metric_is_summed_over_its_labels_and_not_mixed_with_longer_names() {
        let text = "# TYPE tablets gauge\ntablets{disk=\"/a } b\"} 3\ntablets{disk=\"/c\"} 4\ntablets_led 2\n# EOF\n";
        assert_eq!(metric(text, "tablets"), Some(7.0));
        assert_eq!(metric(text, "tablets_led"), Some(2.0));
        assert_eq!(metric(text, "table"), None);
    }
}
