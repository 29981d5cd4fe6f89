//! Every basis of one answer, each with what parts it from the model's own tokens.

use std::collections::BTreeMap;

use vocab::Tokenizer;

use super::basis::{Basis, What};
use super::exchange::Exchange;
use super::prompt::Prompt;
use super::seen::{Kind, Seen, Spoken};
use super::trace::{Trace, count};

/// The counts of an answer.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) accounts: BTreeMap<Basis, Account>,
    pub(super) content: i64,
    pub(super) reasoning: i64,
    pub(super) tool: i64,
    /// The ids decode to the text, where there are any.
    pub(super) ids_decode: Option<bool>,
}

/// A count, and how it comes from the number of the model's own tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) tokens: i64,
    pub(super) terms: BTreeMap<What, i64>,
}

impl Account {
    fn new(tokens: i64, terms: &BTreeMap<What, i64>, more: &[(What, i64)]) -> Self {
        let mut terms = terms.clone();
        for &(what, tokens) in more {
            *terms.entry(what).or_default() += tokens;
        }
        Self { tokens, terms }
    }

    fn plain(tokens: i64) -> Self {
        Self {
            tokens,
            terms: BTreeMap::new(),
        }
    }

    fn with(mut self, (what, tokens): (What, i64)) -> Self {
        *self.terms.entry(what).or_default() += tokens;
        self
    }

    /// What is left of it where the other's terms are taken away.
    pub(super) fn less(&self, other: &Self) -> BTreeMap<What, i64> {
        let mut terms = self.terms.clone();
        for (&what, tokens) in &other.terms {
            *terms.entry(what).or_default() -= tokens;
        }
        terms.retain(|_, tokens| *tokens != 0);
        terms
    }
}

impl Ledger {
    /// Counts an exchange on every basis that there is.
    pub(super) fn new(exchange: &Exchange<'_>) -> anyhow::Result<Self> {
        let mut ledger = Self {
            ids_decode: exchange.ids_decode(),
            ..Self::default()
        };
        let scripted = signed(exchange.truth.completion_tokens);
        let (trace, origin) = (exchange.trace()?, scripted.unwrap_or(0));
        ledger.put(
            origin,
            Basis::Scripted,
            scripted.map(|tokens| Account::new(tokens, &BTreeMap::new(), &[])),
        );
        ledger.texts(exchange, &trace, origin);
        ledger.events(exchange, &trace, origin);
        ledger.usages(exchange, origin);
        ledger.prompt(exchange);
        Ok(ledger)
    }

    /// Keeps an account; what its terms leave of it is unexplained.
    fn put(&mut self, origin: i64, basis: Basis, account: Option<Account>) {
        let Some(mut account) = account else {
            return;
        };
        let rest = account.tokens - origin - account.terms.values().sum::<i64>();
        if rest != 0 {
            account.terms.insert(What::Unexplained, rest);
        }
        self.accounts.insert(basis, account);
    }

    fn texts(&mut self, exchange: &Exchange<'_>, trace: &Trace, origin: i64) {
        let mut first = 0;
        let mut others = 0;
        for (index, spoken) in &exchange.seen.choices {
            let [content, reasoning, tool] = parts(spoken, exchange.client);
            self.content += content;
            self.reasoning += reasoning;
            self.tool += tool;
            let whole = content + reasoning + tool;
            if *index == 0 {
                first = whole;
            }
            others += whole - parts(spoken, exchange.tokenizer).iter().sum::<i64>();
        }
        let whole = self.content + self.reasoning + self.tool;
        let more = [(What::OtherTokenizer, others)];
        let retokenized = Account::new(whole, &trace.terms, &more);
        self.misread(exchange, &retokenized, origin, first);
        self.put(origin, Basis::Retokenized, Some(retokenized));
    }

    /// What clients count that read the texts otherwise.
    fn misread(&mut self, exchange: &Exchange<'_>, retokenized: &Account, origin: i64, first: i64) {
        let (vocab, seen) = (&exchange.client.vocab, exchange.seen);
        let (whole, terms) = (retokenized.tokens, &retokenized.terms);
        let texts = seen.events.iter().flat_map(|event| &event.texts);
        let per_chunk = texts.map(|text| count(vocab, text)).sum();
        let per_chunk = Some(per_chunk).filter(|_| !seen.events.is_empty());
        let frames = Some(count(vocab, &seen.frames)).filter(|_| !seen.frames.is_empty());
        let joined = count(vocab, &seen.joined) + self.tool;
        let twice = whole + count(vocab, &seen.said_twice);
        for (basis, tokens, what) in [
            (Basis::FirstChoice, Some(first), What::OtherChoices),
            (Basis::JoinedChoices, Some(joined), What::JoinedChoices),
            (Basis::FramesJoined, frames, What::RepeatedText),
            (Basis::ReasoningTwice, Some(twice), What::RepeatedReasoning),
            (Basis::PerChunk, per_chunk, What::ChunkBorders),
        ] {
            let account = tokens.map(|tokens| {
                let beside = [(what, tokens - whole)];
                Account::new(tokens, terms, &beside)
            });
            self.put(origin, basis, account);
        }
        let thoughts = (What::ReasoningUnread, -self.reasoning);
        let unread = [thoughts, (What::ToolsUnread, -self.tool)];
        let content = Account::new(self.content, terms, &unread);
        self.put(origin, Basis::ContentOnly, Some(content));
        let alone = count(vocab, &seen.reasoning_alone) - self.reasoning;
        let unread = [(What::ReasoningUnread, alone)];
        let first = Account::new(whole + alone, terms, &unread);
        self.put(origin, Basis::ContentFirst, Some(first));
        if let Some(rendered) = exchange.through_template() {
            let rest = (What::Template, rendered - whole + self.reasoning);
            let account = Account::new(rendered, terms, &[thoughts, rest]);
            self.put(origin, Basis::ThroughTemplate, Some(account));
        }
    }

    fn events(&mut self, exchange: &Exchange<'_>, trace: &Trace, origin: i64) {
        let events = &exchange.seen.events;
        if events.is_empty() {
            return;
        }
        let of = |kind| {
            let alike = events.iter().filter(|event| event.kind == kind);
            i64::try_from(alike.count()).expect("an answer has few events")
        };
        let mut terms = trace.terms.clone();
        for what in [What::Retokenization, What::Arguments] {
            terms.remove(&what);
        }
        let merged = of(Kind::Text) - (trace.arrived - trace.unfinished);
        let more = [
            (What::SplitCharacters, -trace.unfinished),
            (What::Merged, merged),
        ];
        let chunks = Account::new(of(Kind::Text), &terms, &more);
        let more = [
            (What::RoleChunks, of(Kind::Role)),
            (What::FinishChunks, of(Kind::Finish)),
            (What::UsageChunks, of(Kind::Usage)),
            (What::EmptyChunks, of(Kind::Empty)),
        ];
        let all = i64::try_from(events.len()).expect("an answer has few events");
        self.put(
            origin,
            Basis::Events,
            Some(Account::new(all, &chunks.terms, &more)),
        );
        self.put(origin, Basis::Chunks, Some(chunks));
    }

    fn usages(&mut self, exchange: &Exchange<'_>, origin: i64) {
        let seen = exchange.seen;
        let from = |tokens: Option<i64>, what| {
            tokens.map(|tokens| Account::plain(tokens).with((what, tokens - origin)))
        };
        let usage = seen.heard.usage.unwrap_or_default();
        let whole = from(signed(usage.completion_tokens), What::WrongUsage);
        if let Some(whole) = &whole {
            let beside = |what, tokens| {
                let mut account = whole.clone().with((what, tokens));
                account.tokens += tokens;
                Some(account)
            };
            let told = seen.completion_tokens(|_| true);
            if let Some(all) = told.reduce(|all, tokens| all + tokens) {
                let repeated = beside(What::RepeatedUsage, all - whole.tokens);
                self.put(origin, Basis::UsageSummed, repeated);
            }
            if let Some(thoughts) = signed(usage.reasoning_tokens) {
                let rest = beside(What::ReasoningUnread, -thoughts);
                self.put(origin, Basis::UsageLessReasoning, rest);
            }
        }
        self.put(origin, Basis::Usage, whole);
        let with_choices = seen.completion_tokens(|kind| kind != Kind::Usage).last();
        let without = seen.completion_tokens(|kind| kind == Kind::Usage).last();
        let with_text = seen.completion_tokens(|kind| kind == Kind::Text).last();
        let ids = seen
            .choices
            .values()
            .filter_map(|choice| choice.ids.as_ref());
        let ids = ids.map(|ids| ids.len() as u64).reduce(|a, b| a + b);
        let requested = signed(exchange.requested());
        for (basis, tokens, what) in [
            (Basis::UsageWithChoices, with_choices, What::PartialUsage),
            (Basis::UsageWithoutChoices, without, What::PartialUsage),
            (Basis::UsageWithText, with_text, What::PartialUsage),
            (Basis::TokenIds, signed(ids), What::OtherIds),
            (Basis::Requested, requested, What::RequestedLength),
        ] {
            self.put(origin, basis, from(tokens, what));
        }
    }

    fn prompt(&mut self, exchange: &Exchange<'_>) {
        let Some(origin) = signed(exchange.truth.prompt_tokens) else {
            return;
        };
        self.put(origin, Basis::PromptScripted, Some(Account::plain(origin)));
        let usage = exchange.seen.heard.usage.unwrap_or_default();
        if let Some(tokens) = signed(usage.prompt_tokens) {
            let wrong = (What::WrongUsage, tokens - origin);
            let account = Account::plain(tokens).with(wrong);
            self.put(origin, Basis::PromptUsage, Some(account));
            let cached = usage.cache.and_then(|cache| signed(Some(cache.cached)));
            let cached = cached.unwrap_or(0);
            let rest = Account::plain(tokens - cached).with(wrong);
            let rest = rest.with((What::CachedPrompt, -cached));
            self.put(origin, Basis::PromptUncached, Some(rest));
        }
        let mut told = exchange.seen.events.iter();
        let first = told.find_map(|event| signed(event.usage.prompt_tokens));
        let first = first.map(|tokens| {
            let partial = (What::PartialUsage, tokens - origin);
            Account::plain(tokens).with(partial)
        });
        self.put(origin, Basis::PromptUsageFirst, first);
        let body = exchange.body;
        let text = body["prompt"].as_str().or_else(|| body["text"].as_str());
        match text {
            Some(text) => self.plain_prompt(exchange, text, origin),
            None => self.messages(exchange, origin),
        }
    }

    fn plain_prompt(&mut self, exchange: &Exchange<'_>, text: &str, origin: i64) {
        let [whole, bare] = [true, false].map(|special| encoded(exchange.client, text, special));
        self.put(
            origin,
            Basis::PromptRetokenized,
            Some(Account::plain(whole)),
        );
        let bare = Account::plain(bare).with((What::SpecialInPrompt, bare - whole));
        self.put(origin, Basis::PromptText, Some(bare));
    }

    fn messages(&mut self, exchange: &Exchange<'_>, origin: i64) {
        let body = &exchange.scenario.request.body;
        let counted = [exchange.client, exchange.tokenizer].map(|tokenizer| {
            let prompt = Prompt::count(body, tokenizer)?;
            Some((prompt, encoded(tokenizer, "", true)))
        });
        let [Some((client, special)), Some((server, _))] = counted else {
            return;
        };
        // Where the server is not SGLang the tools stay as they are.
        let serve = exchange.scenario.serve.as_deref();
        let rewrites = serve.is_some_and(|words| words.starts_with("sglang"));
        let given = if rewrites {
            server.rewritten
        } else {
            server.whole
        };
        let rewritten = (What::ToolsRewritten, server.whole - given);
        let other = (What::OtherTokenizer, client.whole - server.whole);
        let tools = (What::ToolsInPrompt, client.messages - client.whole);
        let template = (What::Template, client.text - client.messages);
        let extra = (What::SpecialInPrompt, special);
        for (basis, tokens, terms) in [
            (Basis::PromptRetokenized, client.whole, &[][..]),
            (Basis::PromptWithSpecial, client.whole + special, &[extra]),
            (Basis::PromptMessages, client.messages, &[tools]),
            (Basis::PromptText, client.text, &[tools, template]),
        ] {
            let account = Account::plain(tokens).with(rewritten).with(other);
            let account = terms
                .iter()
                .fold(account, |account, &term| account.with(term));
            self.put(origin, basis, Some(account));
        }
    }
}

/// Tokens of the content, the reasoning and the tool calls.
fn parts(spoken: &Spoken, tokenizer: &Tokenizer) -> [i64; 3] {
    let vocab = &tokenizer.vocab;
    let calls = spoken.calls.values();
    let calls = calls.map(|call| count(vocab, &call.name) + count(vocab, &call.arguments));
    let content = count(vocab, &spoken.content);
    [content, count(vocab, &spoken.reasoning), calls.sum()]
}

fn encoded(tokenizer: &Tokenizer, text: &str, add_special_tokens: bool) -> i64 {
    let ids = tokenizer.vocab.encode(text, add_special_tokens);
    i64::try_from(ids.len()).unwrap_or(i64::MAX)
}

impl Seen {
    /// `completion_tokens` of the events of some kinds.
    fn completion_tokens(&self, is_read: fn(Kind) -> bool) -> impl Iterator<Item = i64> {
        let events = self.events.iter().filter(move |event| is_read(event.kind));
        events.filter_map(|event| signed(event.usage.completion_tokens))
    }
}

fn signed(tokens: Option<u64>) -> Option<i64> {
    i64::try_from(tokens?).ok()
}
