//! Requests under way, as far as others can see them: their names, whose turn it is, and who was given up.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use wire::dialect::{Dialect, Envelope};
use wire::failure::Failure;

use crate::stub::Stub;

/// The requests of one stub that are under way.
#[derive(Debug, Default)]
pub struct UnderWay {
    limits: Limits,
    state: Mutex<State>,
}

/// What a stub keeps of its requests, and how many it lets in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Names are kept, so that a request can be given up, and none runs twice.
    pub keeps_names: bool,
    /// A name may be given twice, and is nobody's then.
    pub shares_names: bool,
    /// Requests that run at a time, if that is limited.
    pub running: Option<u64>,
    /// Requests that wait for their turn, if that is limited.
    pub queued: Option<u64>,
}

/// Why a request is not let in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    /// A request of that name is under way.
    Duplicate(String),
    /// As many wait as may.
    Full,
}

impl Refused {
    /// What it is answered with.
    pub(crate) fn failure(&self, dialect: Dialect) -> Failure {
        match self {
            Self::Duplicate(name) => dialect.duplicate_name(name),
            Self::Full => dialect.queue_full(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<Arc<str>, Named>,
    queue: VecDeque<Arc<Place>>,
    running: u64,
}

/// The choice that has a name.
#[derive(Clone, Debug)]
struct Named {
    choice: u32,
    place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    /// Of the request; each has its name, where names are kept.
    choices: usize,
    news: Mutex<News>,
}

#[derive(Debug)]
struct News {
    aborted: Vec<u32>,
    /// Something happened since the ticket was looked at.
    is_new: bool,
    turn: Turn,
    waker: Option<Waker>,
}

/// Whether a request has its turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// It was given up before its turn came.
    Never,
    /// It has.
    Now,
    /// It waits for it.
    Waiting,
}

/// A request's place among those that are under way. Dropped, it leaves, and whoever is next has its turn.
#[derive(Debug)]
pub struct Ticket {
    names: Vec<Arc<str>>,
    place: Arc<Place>,
    under_way: Arc<UnderWay>,
}

/// Lets the request in that an answer is for, if requests have to be let in at all; one that takes no time
/// is never seen by others, unless it has to wait for them.
pub(crate) fn enter(
    stub: &Stub,
    envelope: &Envelope,
    takes_no_time: bool,
) -> Result<Option<Box<Ticket>>, Refused> {
    let Some(under_way) = &stub.engine.under_way else {
        return Ok(None);
    };
    if takes_no_time && under_way.limits.running.is_none() {
        return Ok(None);
    }
    let mut names = vec![&*envelope.id];
    names.extend(envelope.further_ids.iter().map(|id| &**id));
    let ticket = under_way.enter(names.into_iter())?;
    Ok(Some(Box::new(ticket)))
}

impl UnderWay {
    /// None so far.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::default(),
        })
    }

    /// Lets a request in whose choices have these names.
    pub(crate) fn enter<'n>(
        self: &Arc<Self>,
        names: impl ExactSizeIterator<Item = &'n str>,
    ) -> Result<Ticket, Refused> {
        let choices = names.len();
        let mut names: Vec<Arc<str>> = if self.limits.keeps_names {
            names.map(Into::into).collect()
        } else {
            Vec::new()
        };
        let mut state = self.state();
        if self.limits.shares_names {
            names.retain(|name| state.names.remove(name).is_none());
        }
        for (number, name) in names.iter().enumerate() {
            if state.names.contains_key(name) || names[..number].contains(name) {
                return Err(Refused::Duplicate(name.to_string()));
            }
        }
        let Limits {
            running, queued, ..
        } = self.limits;
        let turn = if running.is_none_or(|most| state.running < most) {
            state.running += 1;
            Turn::Now
        } else if queued.is_none_or(|most| (state.queue.len() as u64) < most) {
            Turn::Waiting
        } else {
            return Err(Refused::Full);
        };
        let place = Arc::new(Place::new(choices, turn));
        if turn == Turn::Waiting {
            state.queue.push_back(Arc::clone(&place));
        }
        for (choice, name) in (0..).zip(&names) {
            let place = Arc::clone(&place);
            state
                .names
                .insert(Arc::clone(name), Named { choice, place });
        }
        drop(state);
        Ok(Ticket {
            names,
            place,
            under_way: Arc::clone(self),
        })
    }

    /// Gives up the request of that name, and with it all whose names begin so; none if there is no such
    /// request.
    pub fn abort(&self, name: &str) {
        let mut state = self.state();
        if !state.names.contains_key(name) {
            return;
        }
        let from = (Bound::Included(name), Bound::Unbounded);
        let named = state.names.range::<str, _>(from);
        let alike = named.take_while(|(other, _)| other.starts_with(name));
        let all: Vec<Named> = alike.map(|(_, named)| named.clone()).collect();
        let woken = state.abort(&all);
        drop(state);
        wake(woken);
    }

    /// Gives up all requests that have names.
    pub fn abort_all(&self) {
        let mut state = self.state();
        let all: Vec<Named> = state.names.values().cloned().collect();
        let woken = state.abort(&all);
        drop(state);
        wake(woken);
    }

    fn leave(&self, place: &Arc<Place>, names: &[Arc<str>]) {
        let mut state = self.state();
        for name in names {
            let own = |named: &Named| Arc::ptr_eq(&named.place, place);
            if state.names.get(name).is_some_and(own) {
                state.names.remove(name);
            }
        }
        let next = match place.news().turn {
            Turn::Never => None,
            Turn::Now => state.next(),
            Turn::Waiting => {
                state.leave_queue(place);
                None
            }
        };
        drop(state);
        wake(next);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with the lock")
    }
}

fn wake(woken: impl IntoIterator<Item = Waker>) {
    for waker in woken {
        waker.wake();
    }
}

impl State {
    /// Gives the place of one that leaves to the next in the queue; gives who is to be woken.
    fn next(&mut self) -> Option<Waker> {
        let Some(next) = self.queue.pop_front() else {
            self.running -= 1;
            return None;
        };
        next.news().tell(|news| news.turn = Turn::Now)
    }

    fn leave_queue(&mut self, place: &Arc<Place>) {
        self.queue.retain(|other| !Arc::ptr_eq(other, place));
    }

    /// Gives up some choices; gives who is to be woken.
    fn abort(&mut self, all: &[Named]) -> Vec<Waker> {
        let mut woken = Vec::new();
        for Named { choice, place } in all {
            let mut news = place.news();
            if news.aborted.contains(choice) {
                continue;
            }
            news.aborted.push(*choice);
            if news.turn == Turn::Waiting && news.aborted.len() == place.choices {
                news.turn = Turn::Never;
                self.leave_queue(place);
            }
            woken.extend(news.tell(|_| {}));
        }
        woken
    }
}

impl Place {
    fn new(choices: usize, turn: Turn) -> Self {
        let news = News {
            aborted: Vec::new(),
            is_new: false,
            turn,
            waker: None,
        };
        Self {
            choices,
            news: Mutex::new(news),
        }
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().expect("nobody panics with the lock")
    }
}

impl News {
    fn tell(&mut self, what: impl FnOnce(&mut Self)) -> Option<Waker> {
        what(self);
        self.is_new = true;
        self.waker.take()
    }
}

impl Ticket {
    /// Whether the request has its turn, and which of its choices were given up so far.
    pub fn look(&self) -> (Turn, Vec<u32>) {
        let mut news = self.place.news();
        news.is_new = false;
        (news.turn, news.aborted.clone())
    }

    /// Whether the request has its turn.
    pub fn turn(&self) -> Turn {
        self.place.news().turn
    }

    /// Whether the request may be given up by its name.
    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether something happened since it was looked at; if not, what happens next wakes.
    pub fn has_news(&self, waker: &Waker) -> bool {
        let mut news = self.place.news();
        if !news.is_new {
            match &mut news.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        news.is_new
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.under_way.leave(&self.place, &self.names);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    const NAMED: Limits = Limits {
        keeps_names: true,
        shares_names: false,
        running: None,
        queued: None,
    };

    fn enter(under_way: &Arc<UnderWay>, names: &[&str]) -> Result<Ticket, Refused> {
        under_way.enter(names.iter().copied())
    }

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_abort_needs_a_name_and_takes_those_that_begin_with_it() {
        let under_way = UnderWay::new(NAMED);
        let [one, more, other] = [&["a"][..], &["a-1", "b"], &["c"]]
            .map(|names| enter(&under_way, names).expect("let in"));
        under_way.abort("");
        under_way.abort("a-");
        assert_eq!(
            [&one, &more].map(Ticket::look),
            [(Turn::Now, vec![]), (Turn::Now, vec![])]
        );
        under_way.abort("a");
        assert_eq!(one.look(), (Turn::Now, vec![0]));
        assert_eq!(more.look(), (Turn::Now, vec![0]));
        assert_eq!(other.look(), (Turn::Now, vec![]));
        under_way.abort_all();
        assert_eq!(more.look(), (Turn::Now, vec![0, 1]));
        assert_eq!(other.look(), (Turn::Now, vec![0]));
    }

    #[test]
    fn a_name_is_free_again_when_its_request_leaves() {
        let under_way = UnderWay::new(NAMED);
        let first = enter(&under_way, &["a"]).expect("let in");
        let duplicate = Refused::Duplicate("a".into());
        assert_eq!(enter(&under_way, &["b", "a"]).unwrap_err(), duplicate);
        assert_eq!(
            enter(&under_way, &["b", "b"]).unwrap_err(),
            Refused::Duplicate("b".into())
        );
        drop(first);
        enter(&under_way, &["a"]).expect("let in");
    }

    #[test]
    fn a_name_given_twice_is_nobodys() {
        let under_way = UnderWay::new(Limits {
            shares_names: true,
            ..NAMED
        });
        let first = enter(&under_way, &["1"]).expect("let in");
        let second = enter(&under_way, &["1"]).expect("let in");
        under_way.abort("1");
        assert_eq!((first.look().1, second.look().1), (vec![], vec![]));
        let third = enter(&under_way, &["1"]).expect("let in");
        drop((first, second));
        under_way.abort("1");
        assert_eq!(third.look().1, [0]);
    }

    #[test]
    fn the_first_in_the_queue_has_the_next_turn() {
        let under_way = UnderWay::new(Limits {
            running: Some(1),
            queued: Some(3),
            ..NAMED
        });
        let first = enter(&under_way, &["1"]).expect("let in");
        let [second, third, fourth] =
            ["2", "3", "4"].map(|name| enter(&under_way, &[name]).expect("let in"));
        assert_eq!(enter(&under_way, &["5"]).unwrap_err(), Refused::Full);
        under_way.abort("2");
        assert_eq!(second.look(), (Turn::Never, vec![0]));
        drop(third);
        let (count, waker) = counted();
        assert!(!fourth.has_news(&waker));
        drop(second);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(fourth.has_news(&waker));
        assert_eq!(fourth.look(), (Turn::Now, vec![]));
        assert!(!fourth.has_news(&waker));
        drop(fourth);
        assert_eq!(enter(&under_way, &["6"]).expect("let in").turn(), Turn::Now);
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    #[test]
    fn who_waits_in_part_keeps_its_place() {
        let under_way = UnderWay::new(Limits {
            running: Some(1),
            ..NAMED
        });
        let first = enter(&under_way, &["1"]).expect("let in");
        let both = enter(&under_way, &["2", "3"]).expect("let in");
        under_way.abort("3");
        assert_eq!(both.look(), (Turn::Waiting, vec![1]));
        drop(first);
        assert_eq!(both.look(), (Turn::Now, vec![1]));
    }

    proptest! {
        #[test]
        fn never_more_run_than_may_and_turns_keep_their_order(
            most in 1_u64..4,
            leaves in prop::collection::vec(0_usize..8, 1..60),
        ) {
            let under_way = UnderWay::new(Limits { running: Some(most), ..Limits::default() });
            let mut here: Vec<Ticket> = Vec::new();
            for leave in leaves {
                if leave < here.len() {
                    here.remove(leave);
                } else {
                    here.push(enter(&under_way, &["x"]).expect("let in"));
                }
                let turns: Vec<Turn> = here.iter().map(Ticket::turn).collect();
                let most = usize::try_from(most).unwrap().min(here.len());
                let expected = (0..here.len()).map(|at| if at < most { Turn::Now } else { Turn::Waiting });
                prop_assert_eq!(turns, expected.collect::<Vec<_>>());
            }
        }
    }
}
