//! Sessions: which tokens each still has, and what a new prompt can use of them.

use std::collections::BTreeMap;

use wire::worker_lines::Refusal;

/// A session's tokens.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// They are not to be used again.
    pub(super) dirty: bool,
    /// Exactly those that the model's memory holds.
    pub(super) resident: Vec<i64>,
}

/// Named sessions and the one for requests without a name. None is ever given up unless it is closed.
#[derive(Debug)]
pub(super) struct Sessions {
    named: BTreeMap<String, Session>,
    scratch: Session,
    slots: u64,
}

/// What a prompt can use of a session.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Plan {
    /// Why no more, in the words of `session_reset_reason`.
    pub(super) reason: &'static str,
    /// Tokens that need no prefill.
    pub(super) reused: usize,
}

impl Plan {
    fn full(reason: &'static str) -> Self {
        Self { reason, reused: 0 }
    }
}

impl Session {
    /// What a prompt can use.
    fn plan(&self, prompt: &[i64]) -> Plan {
        let resident = &self.resident;
        if self.dirty {
            Plan::full("dirty")
        } else if resident.is_empty() {
            Plan::full("new")
        } else if !prompt.starts_with(resident) {
            Plan::full("mismatch")
        } else if prompt.len() == resident.len() {
            Plan::full("equal")
        } else {
            Plan {
                reason: "exact_prefix",
                reused: resident.len(),
            }
        }
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Sessions {
    /// One of `max_sessions` slots is for requests without a name.
    pub(super) fn new(max_sessions: u64) -> Self {
        Self {
            named: BTreeMap::new(),
            scratch: Session::default(),
            slots: max_sessions.saturating_sub(1),
        }
    }

    /// Gives the session a slot unless it has one.
    pub(super) fn admit(&mut self, id: &str) -> Result<(), Refusal> {
        if id.is_empty() || self.named.contains_key(id) {
            return Ok(());
        }
        if self.slots == 0 {
            return Err(Refusal::UnsupportedSession);
        }
        if self.named.len() as u64 >= self.slots {
            return Err(Refusal::CapacityExhausted);
        }
        self.named.insert(id.into(), Session::default());
        Ok(())
    }

    /// Gives its slot up.
    pub(super) fn close(&mut self, id: &str) {
        self.named.remove(id);
    }

    /// A named session that has a slot.
    pub(super) fn named(&mut self, id: &str) -> Option<&mut Session> {
        self.named.get_mut(id)
    }

    /// The session of a turn, which was admitted.
    pub(super) fn of_turn(&mut self, id: &str) -> &mut Session {
        self.named.get_mut(id).unwrap_or(&mut self.scratch)
    }

    /// What a prompt can use; nothing without a name, or if sessions are not resumed.
    pub(super) fn plan(&self, id: &str, prompt: &[i64], warm_resume: bool) -> Plan {
        match self.named.get(id) {
            Some(session) if warm_resume => session.plan(prompt),
            _ => Plan::full("new"),
        }
    }
}
