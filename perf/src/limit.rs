//! Which side was the limit of a row.

use serde::Serialize;

/// A side that is so busy has nothing to give.
const BUSY: f64 = 0.9;
/// Share of the open requests that are on the server's side if it is the one that waits.
const MOST: f64 = 0.8;
/// A client that neither runs nor wants to for half of the time pauses by itself.
const IDLE: f64 = 0.5;
/// A side that is so many times busier than the other one is the limit where neither could be busy.
const FAR: f64 = 1.5;
/// A side that waits so long for a core while it is not busy waits for somebody else.
const CROWDED: f64 = 0.2;
/// Share of the rate that was asked for which counts as met.
pub(crate) const SUSTAINED: f64 = 0.95;

/// How busy a side's threads were, as shares of the time that they could have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Load {
    /// On a core.
    pub(crate) busy: f64,
    /// Ready to run, but not on a core.
    pub(crate) waits: f64,
}

impl Load {
    fn demand(self) -> f64 {
        self.busy + self.waits
    }
}

/// What is known of a window when it is asked who was the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Evidence {
    /// The client's threads.
    pub(crate) client: Option<Load>,
    /// The server's threads.
    pub(crate) server: Option<Load>,
    /// Requests that the client had open, on average; none if it is not ours.
    pub(crate) open: Option<f64>,
    /// Requests that the server was busy with, by its own clock, on average.
    pub(crate) in_server: Option<f64>,
    /// Requests/s that fell due, in an open loop.
    pub(crate) offered: Option<f64>,
    /// Answers as a share of those requests, each a second.
    pub(crate) of_target: Option<f64>,
}

/// The side that was the limit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// The client had no CPU time left.
    Client,
    /// The client let the server wait although it had CPU time.
    ClientPauses,
    /// Neither: the time went to the kernel and to changing sides.
    Kernel,
    /// Neither: other processes had the cores.
    Others,
    /// None: the rate that was asked for was met.
    Rate,
    /// The server had no CPU time left.
    Server,
    /// The server let the client wait although it had CPU time, as one that is paced does.
    ServerPauses,
    /// Nothing was measured that could tell.
    Unknown,
}

impl Limit {
    /// The side in a word or two.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::ClientPauses => "client (pauses)",
            Self::Kernel => "kernel",
            Self::Others => "other processes",
            Self::Rate => "none (rate met)",
            Self::Server => "server",
            Self::ServerPauses => "server (pauses)",
            Self::Unknown => "unknown",
        }
    }

    /// What was seen, in a clause.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Client | Self::Server => {
                "its threads had no CPU time left, or took most of each turn"
            }
            Self::ClientPauses => "the server had nothing to do most of the time",
            Self::Kernel => "neither side was busy, and requests spent their time between them",
            Self::Others => "both sides waited for cores that neither of them kept busy",
            Self::Rate => "the rate that was asked for was met",
            Self::ServerPauses => {
                "requests spent their time in it although it had CPU time left, as in a paced answer"
            }
            Self::Unknown => "CPU times are not known",
        }
    }
}

/// Names the side that was the limit.
pub(crate) fn limit(evidence: &Evidence) -> Limit {
    if evidence.of_target.is_some_and(|share| share >= SUSTAINED) {
        return Limit::Rate;
    }
    let demand = |load: Option<Load>| load.map_or(0.0, Load::demand);
    let (client, server) = (demand(evidence.client), demand(evidence.server));
    let busier = if client > server {
        Limit::Client
    } else {
        Limit::Server
    };
    if client.max(server) >= BUSY {
        return busier;
    }
    let waits = |load: Option<Load>| load.map_or(0.0, |load| load.waits);
    let is_crowded = waits(evidence.client).max(waits(evidence.server)) >= CROWDED;
    let (more, less) = (client.max(server), client.min(server));
    let is_plain = evidence.server.is_some() && more >= IDLE && more >= FAR * less;
    match (evidence.in_server, evidence.open) {
        (Some(inside), Some(open)) if inside >= MOST * open => Limit::ServerPauses,
        // Sides that take turns are never busy all the time; nor are those that others get in the way of.
        (_, open) if is_plain && (open.is_none() || is_crowded) => busier,
        // A client whose connections nobody counted has at least one.
        (Some(inside), None) if inside >= MOST => Limit::ServerPauses,
        (Some(_), None) if evidence.client.is_some() && client < IDLE => Limit::ClientPauses,
        _ if is_crowded => Limit::Others,
        (Some(_), None) => Limit::ClientPauses,
        _ if evidence.client.is_none() || evidence.server.is_none() => Limit::Unknown,
        _ => Limit::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn load(busy: f64, waits: f64) -> Load {
        Load { busy, waits }
    }

    #[test]
    fn the_side_without_headroom_is_named() {
        let none = Evidence::default();
        let table = [
            (
                "busy client",
                Some(load(0.98, 0.0)),
                Some(load(0.55, 0.0)),
                Limit::Client,
            ),
            (
                "busy server",
                Some(load(0.60, 0.0)),
                Some(load(0.97, 0.01)),
                Limit::Server,
            ),
            (
                "both busy, the server waits",
                Some(load(0.92, 0.01)),
                Some(load(0.91, 0.3)),
                Limit::Server,
            ),
            (
                "both busy, the client waits",
                Some(load(0.5, 0.5)),
                Some(load(0.93, 0.02)),
                Limit::Client,
            ),
            (
                "neither, both waiting",
                Some(load(0.2, 0.5)),
                Some(load(0.2, 0.5)),
                Limit::Others,
            ),
            (
                "neither",
                Some(load(0.4, 0.0)),
                Some(load(0.5, 0.0)),
                Limit::Kernel,
            ),
            (
                "no CPU times of the server",
                Some(load(0.4, 0.0)),
                None,
                Limit::Unknown,
            ),
            (
                "no CPU times but a busy client",
                Some(load(0.99, 0.0)),
                None,
                Limit::Client,
            ),
        ];
        for (case, client, server, expected) in table {
            let evidence = Evidence {
                client,
                server,
                ..none
            };
            assert_eq!(limit(&evidence), expected, "{case}");
        }
    }

    #[test]
    fn a_side_that_pauses_is_named_by_where_requests_were() {
        let idle = Evidence {
            client: Some(load(0.1, 0.0)),
            server: Some(load(0.1, 0.0)),
            ..Evidence::default()
        };
        let table = [
            ("a paced stub", Some(64.0), Some(62.0), Limit::ServerPauses),
            (
                "requests lie in sockets",
                Some(64.0),
                Some(12.0),
                Limit::Kernel,
            ),
            (
                "a paced stub, any client",
                None,
                Some(1.0),
                Limit::ServerPauses,
            ),
            (
                "a client that thinks",
                None,
                Some(0.05),
                Limit::ClientPauses,
            ),
            ("no clock in the server", Some(64.0), None, Limit::Kernel),
        ];
        for (case, open, in_server, expected) in table {
            let evidence = Evidence {
                open,
                in_server,
                ..idle
            };
            assert_eq!(limit(&evidence), expected, "{case}");
        }
    }

    #[test]
    fn sides_that_take_turns_or_are_disturbed_are_told_apart_by_their_shares() {
        let table = [
            (
                "a client of one connection",
                None,
                load(0.75, 0.0),
                load(0.24, 0.0),
                Limit::Client,
            ),
            (
                "a server asked one by one",
                None,
                load(0.2, 0.0),
                load(0.78, 0.0),
                Limit::Server,
            ),
            (
                "a disturbed slow client",
                Some(64.0),
                load(0.3, 0.45),
                load(0.1, 0.2),
                Limit::Client,
            ),
            (
                "alike and disturbed",
                Some(64.0),
                load(0.3, 0.45),
                load(0.2, 0.4),
                Limit::Others,
            ),
            (
                "undisturbed and not busy",
                Some(64.0),
                load(0.6, 0.0),
                load(0.2, 0.0),
                Limit::Kernel,
            ),
        ];
        for (case, open, client, server, expected) in table {
            let evidence = Evidence {
                client: Some(client),
                server: Some(server),
                open,
                in_server: Some(0.2),
                ..Evidence::default()
            };
            assert_eq!(limit(&evidence), expected, "{case}");
        }
    }

    #[test]
    fn a_rate_that_is_met_has_no_limit() {
        let evidence = |share| Evidence {
            client: Some(load(0.95, 0.0)),
            server: Some(load(0.5, 0.0)),
            of_target: Some(share),
            ..Evidence::default()
        };
        assert_eq!(limit(&evidence(0.97)), Limit::Rate);
        assert_eq!(limit(&evidence(0.94)), Limit::Client);
    }
}
