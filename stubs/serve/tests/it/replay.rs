//! Recorded folders, played over a socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plan::replay::{Recorded, Replay};
use serve::replay::{Pace, Plays, load};
use serve::server::{Config, Server};
use wire::recording::{Arrival, Times};

use crate::support::{Client, fixtures, post};

/// Recordings that are played.
pub(crate) struct Player(Server);

impl Player {
    pub(crate) fn start(recorded: Vec<Recorded>, plays: Plays) -> Self {
        let replay = Arc::new(Replay::new(recorded));
        Self(Server::replay(&Config::default(), replay, plays).unwrap())
    }

    fn client(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub(crate) fn stop(self) {
        self.0.stop(Duration::from_secs(5)).unwrap();
    }
}

fn folder(name: &str) -> Vec<Recorded> {
    load(&fixtures().join("wire").join(name)).unwrap()
}

/// All bytes up to as many as are expected, or to the connection's end.
fn answer(player: &Player, request: &[u8], expected: usize) -> Vec<u8> {
    let mut client = player.client();
    client.send(request);
    while client.input().len() < expected && client.read() {}
    client.input().to_vec()
}

#[test]
fn every_recorded_request_gets_its_recorded_bytes() {
    let recorded = folder("vllm-0.33.0/default");
    let player = Player::start(recorded.clone(), Plays::default());
    let cases = recorded.iter().filter(|case| {
        let clients_doing = ["disconnect", "half-close"];
        !clients_doing.iter().any(|name| case.name.contains(name))
    });
    let mut count = 0;
    for case in cases {
        let ours = answer(&player, &case.request, case.response.len());
        assert!(ours == case.response, "{}", case.name);
        count += 1;
    }
    player.stop();
    assert_eq!(count, 309);
}

#[test]
fn a_connection_carries_on_behind_what_was_not_recorded() {
    let player = Player::start(folder("vllm-0.33.0/api-key"), Plays::default());
    let mut client = player.client();
    let missed = client.post("/v1/chat/completions", "{}");
    assert_eq!(missed.status, 404);
    let text = String::from_utf8(missed.body).unwrap();
    assert!(
        text.contains("the nearest with this target is `no-key`"),
        "{text}"
    );
    client.send(b"GET /health HTTP/1.1\r\nHost: b\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 200);
    let elsewhere = client.post("/elsewhere", "{}");
    let text = String::from_utf8(elsewhere.body).unwrap();
    assert!(text.contains("none has this target"), "{text}");
    player.stop();
}

#[test]
fn the_nearest_case_answers_if_it_may() {
    let plays = Plays {
        nearest: true,
        ..Plays::default()
    };
    let player = Player::start(folder("vllm-0.33.0/fingerprint-none"), plays);
    let answer = player.client().post(
        "/v1/chat/completions",
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
    );
    assert!(
        String::from_utf8(answer.body)
            .unwrap()
            .contains("\"usage\":{")
    );
    player.stop();
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it_once() {
    let case = folder("vllm-0.33.0/default")
        .into_iter()
        .find(|case| case.name == "chat-expect-100");
    let case = case.unwrap();
    let player = Player::start(vec![case.clone()], Plays::default());
    let body = case
        .request
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap()
        + 4;
    let mut client = player.client();
    client.send(&case.request[..body]);
    let interim = wire::http1::CONTINUE;
    while client.input().len() < interim.len() {
        assert!(client.read());
    }
    assert_eq!(client.input(), interim);
    client.send(&case.request[body..]);
    while client.input().len() < case.response.len() && client.read() {}
    assert!(client.input() == case.response);
    player.stop();
}

#[test]
fn parts_come_when_they_came() {
    let body = "{}";
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
    let recorded = Recorded {
        name: "timed".into(),
        request: post("/a", body).into_bytes(),
        response: format!("{head}{body}").into_bytes(),
        times: Some(Times(vec![
            Arrival(1_000_000, head.len()),
            Arrival(30_000_000, 2),
        ])),
    };
    let plays = Plays {
        pace: Pace::Recorded,
        ..Plays::default()
    };
    let player = Player::start(vec![recorded], plays);
    let mut client = player.client();
    let started = tokio::time::Instant::now();
    assert_eq!(client.post("/a", body).body, body.as_bytes());
    assert!(started.elapsed() >= Duration::from_millis(28));
    player.stop();
}
