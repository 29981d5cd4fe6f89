//! A chat that was played for a route which lays its answer out in its own way.

use std::sync::Arc;
use std::time::Duration;

use wire::chunk::Choice;
use wire::dialect::Envelope;
use wire::failure::Failure;
use wire::request::Request;
use wire::usage::Usage;

use crate::answer::{self, Answer};
use crate::layout::Moments;
use crate::prompt::Counted;
use crate::reply::{Body, Facts, Reply, Whole};
use crate::stub::{Call, Context, Stub};
use crate::timeline;
use crate::under_way::{self, Ticket};
use crate::work::Work;

/// One answer to one prompt.
pub(crate) struct Played<'a> {
    answer: Answer<'a>,
    facts: Facts,
    ticket: Option<Box<Ticket>>,
    pub(crate) usage: Usage,
    works: Arc<[Work]>,
}

impl<'a> Played<'a> {
    /// Plays the script for a chat whose answer has that id.
    pub(crate) fn new(
        stub: &'a Stub,
        request: &'a Request<'a>,
        prompt: &'a Counted<'a>,
        id: String,
        context: &'a mut Context,
    ) -> Result<Self, Failure> {
        let envelope = Envelope {
            created: context.created,
            ..Envelope::new(request.endpoint, id, answer::model(stub, request))
        };
        let ticket =
            under_way::enter(stub, &envelope, false).map_err(|why| why.failure(stub.dialect))?;
        let mut answer = Answer::new(stub, request, prompt, envelope, &mut context.random);
        answer.play()?;
        let usage = timeline::total_usage(&answer.plan, &answer.tracks);
        let (facts, works) = (answer.facts(), answer.works());
        Ok(Self {
            answer,
            facts,
            ticket,
            usage,
            works,
        })
    }

    /// When the last token is there.
    pub(crate) fn due(&self) -> Duration {
        timeline::whole_due(&self.answer.plan, &self.answer.tracks)
    }

    pub(crate) fn random(&mut self) -> &mut fastrand::Rng {
        self.answer.random
    }

    pub(crate) fn envelope(&self) -> &Envelope {
        &self.answer.envelope
    }

    /// The answer step by step.
    pub(crate) fn moments(&mut self) -> Moments {
        let track = self.answer.tracks.remove(0);
        Moments::new(self.answer.plan.clone(), track)
    }

    /// The answer as one choice, and when it is due.
    pub(crate) fn whole(&mut self) -> (Choice<'static>, Duration) {
        let due = self.due();
        let track = self.answer.tracks.remove(0);
        (self.answer.whole_choice(0, track), due)
    }

    /// The reply with a body, and what the truth file says of it.
    pub(crate) fn reply(self, request: &Request<'_>, call: &Call<'_>, body: Body) -> Reply {
        let prompt = || {
            request
                .prompt
                .decisive_text()
                .unwrap_or_default()
                .to_owned()
        };
        Reply {
            body,
            facts: Some(Box::new(Facts {
                prompt: call.wants_facts.then(prompt),
                ..self.facts
            })),
            works: Some(self.works),
            ticket: self.ticket,
            ..Reply::empty(200)
        }
    }

    /// A body that is sent at once.
    pub(crate) fn whole_body(&self, bytes: Vec<u8>, due: Duration) -> Body {
        let tokens = self.usage.completion_tokens.unwrap_or(0);
        Body::Whole(Whole {
            bytes,
            due,
            is_json: true,
            kept: None,
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        })
    }
}
