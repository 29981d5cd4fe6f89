//! `served SCENARIO COUNT` serves COUNT requests on sockets, from one worker to 64 connections.
//!
//! `perf/instructions` counts the worker's instructions and system calls. The client writes a request on
//! each connection before it reads the first answer, so that the worker finds as many at once each time.

mod scenario;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serve::server::{Config, Server};
use wire::http1::{BodyDecoder, ResponseHead};

use scenario::Scenario;

/// Connections that are busy all the time.
const CONNECTIONS: usize = 64;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(count)) = (arguments.next(), arguments.next()) else {
        bail!("usage: served SCENARIO COUNT");
    };
    let scenario = Scenario::named(&name)?;
    let count: usize = count.parse().context("COUNT is a number")?;
    let server = Server::start(&Config::default(), Arc::new(scenario.stub))?;
    let connect = |_| TcpStream::connect(server.address());
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect::<Result<_, _>>()?;
    let mut input = Vec::new();
    for _ in 0..count.div_ceil(CONNECTIONS) {
        for stream in &mut streams {
            stream.write_all(&scenario.request)?;
        }
        for stream in &mut streams {
            let events = answer(stream, &mut input)?;
            ensure!(events == scenario.events, "{events} events instead");
        }
    }
    server.stop(Duration::ZERO)?;
    Ok(())
}

/// Reads an answer; gives its number of events.
fn answer(stream: &mut TcpStream, input: &mut Vec<u8>) -> anyhow::Result<usize> {
    input.clear();
    let (head, length) = loop {
        if let Some(found) = ResponseHead::parse(input)? {
            break found;
        }
        read(stream, input)?;
    };
    ensure!(head.status == 200, "status {}", head.status);
    let mut decoder = BodyDecoder::new(head.framing);
    let mut content = Vec::new();
    let mut used = length;
    loop {
        used += decoder.feed(&input[used..], |part| content.extend_from_slice(part))?;
        if decoder.is_complete() {
            break;
        }
        read(stream, input)?;
    }
    ensure!(used == input.len(), "bytes behind the answer");
    let events = content.windows(2).filter(|pair| pair == b"\n\n").count();
    Ok(if head.event_stream { events } else { 1 })
}

fn read(stream: &mut TcpStream, input: &mut Vec<u8>) -> anyhow::Result<()> {
    let mut buffer = [0; 16 << 10];
    let count = stream.read(&mut buffer)?;
    ensure!(count > 0, "the server closed the connection");
    input.extend_from_slice(&buffer[..count]);
    Ok(())
}
