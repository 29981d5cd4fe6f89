//! Where the server is, and single requests outside the measured load.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, bail};
use wire::http1::{BodyDecoder, ResponseHead};

use crate::cpu::Cpu;
use crate::error::UsageError;

const PATIENCE: Duration = Duration::from_secs(5);
const MAX_BODY: usize = 16 << 20;

/// A server's address as HTTP needs it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The `host` header.
    pub(crate) authority: String,
    /// What stands before `/v1` in every path.
    pub(crate) prefix: String,
}

impl Target {
    /// Reads `http://HOST[:PORT][/PREFIX][/v1]` and looks the host up.
    pub(crate) fn parse(url: &str) -> Result<Self, UsageError> {
        let wrong = |reason: &str| UsageError(format!("--url {url:?}: {reason}"));
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err(wrong("https is not supported, use http")),
            _ => return Err(wrong("expected http://HOST:PORT")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.is_empty() || rest.contains(['?', '#', ' ', '\r', '\n', '@']) {
            return Err(wrong("expected http://HOST:PORT"));
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        let port = if has_port { "" } else { ":80" };
        let addresses = format!("{authority}{port}").to_socket_addrs();
        let addresses = addresses.map_err(|error| wrong(&error.to_string()))?;
        let address = reachable(addresses).ok_or_else(|| wrong("the host has no address"))?;
        let path = path.trim_end_matches('/');
        let prefix = path
            .strip_suffix("v1")
            .unwrap_or(path)
            .trim_end_matches('/');
        let slash = if prefix.is_empty() { "" } else { "/" };
        Ok(Self {
            address,
            authority: authority.into(),
            prefix: format!("{slash}{prefix}"),
        })
    }

    /// The first model that the server lists.
    pub(crate) fn first_model(&self, api_key: Option<&str>) -> anyhow::Result<String> {
        #[derive(serde::Deserialize)]
        struct Models {
            data: Vec<Model>,
        }
        #[derive(serde::Deserialize)]
        struct Model {
            id: String,
        }
        let (status, body) = self.get("/v1/models", api_key)?;
        let models: Option<Models> = serde_json::from_slice(&body).ok();
        let first = models.and_then(|models| models.data.into_iter().next());
        match first {
            Some(model) if status == 200 => Ok(model.id),
            _ => Err(UsageError(format!(
                "{} lists no model (/v1/models answered {status}): name one with --model",
                self.authority
            ))
            .into()),
        }
    }

    /// What the server's metrics tell of its CPU time.
    pub(crate) fn cpu(&self, api_key: Option<&str>) -> Option<Cpu> {
        let (status, body) = self.get("/metrics", api_key).ok()?;
        let text = String::from_utf8(body).ok()?;
        (status == 200).then(|| Cpu::server(&text)).flatten()
    }

    pub(crate) fn get(&self, path: &str, api_key: Option<&str>) -> anyhow::Result<(u16, Vec<u8>)> {
        let unreachable = || format!("failed to connect to http://{}", self.authority);
        let mut stream =
            TcpStream::connect_timeout(&self.address, PATIENCE).with_context(unreachable)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let bearer = api_key.map(|key| format!("authorization: Bearer {key}\r\n"));
        let request = format!(
            "GET {}{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{}\r\n",
            self.prefix,
            self.authority,
            bearer.unwrap_or_default()
        );
        stream.write_all(request.as_bytes())?;
        read_answer(&mut stream).with_context(|| format!("failed to get {path}"))
    }
}

/// The first address that accepts a connection, else the first: `localhost` has several.
fn reachable(addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let addresses: Vec<SocketAddr> = addresses.collect();
    let accepts = |address: &&SocketAddr| TcpStream::connect_timeout(address, PATIENCE).is_ok();
    match addresses[..] {
        [only] => Some(only),
        _ => addresses
            .iter()
            .find(accepts)
            .or_else(|| addresses.first())
            .copied(),
    }
}

fn read_answer(stream: &mut TcpStream) -> anyhow::Result<(u16, Vec<u8>)> {
    let mut input = Vec::new();
    let mut buffer = [0; 16 << 10];
    let mut read = |input: &mut Vec<u8>| -> std::io::Result<usize> {
        let count = stream.read(&mut buffer)?;
        input.extend_from_slice(&buffer[..count]);
        Ok(count)
    };
    let (head, length) = loop {
        if let Some(head) = ResponseHead::parse(&input)? {
            break head;
        }
        if read(&mut input)? == 0 || input.len() > MAX_BODY {
            bail!("the connection ended within the head");
        }
    };
    input.drain(..length);
    let mut body = Vec::new();
    let mut decoder = BodyDecoder::new(head.framing);
    loop {
        decoder.feed(&input, |part| body.extend_from_slice(part))?;
        input.clear();
        if decoder.is_complete() {
            break;
        }
        if read(&mut input)? == 0 {
            anyhow::ensure!(decoder.ends_with_connection(), "the body is cut");
            break;
        }
        anyhow::ensure!(body.len() <= MAX_BODY, "the body is too long");
    }
    Ok((head.status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_address_authority_and_prefix() {
        for (url, authority, prefix, port) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000", "", 8000),
            ("http://127.0.0.1", "127.0.0.1", "", 80),
            ("http://127.0.0.1:1/v1/", "127.0.0.1:1", "", 1),
            ("http://127.0.0.1:1/a/b/v1", "127.0.0.1:1", "/a/b", 1),
            ("http://[::1]:9/", "[::1]:9", "", 9),
            ("http://[::1]", "[::1]", "", 80),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((&*target.authority, &*target.prefix), (authority, prefix));
            assert_eq!(target.address.port(), port, "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for url in [
            "127.0.0.1:8000",
            "https://127.0.0.1",
            "http://",
            "http://a:b",
            "http://127.0.0.1:1/?x",
            "ftp://127.0.0.1",
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }
}
