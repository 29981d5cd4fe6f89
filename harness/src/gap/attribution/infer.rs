//! What a server may have said where it does not tell its tokens: the text rendered again.

use vocab::Tokenizer;
use wire::finish::{FinishReason, StopReason};

use super::{Call, Choice, Flavour, Pair, signed};

/// One way in which an answer may have been written.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
struct Guess {
    /// The opening tag of reasoning is the model's, not the prompt's.
    opens: bool,
    /// Reasoning was closed.
    closes: bool,
    /// A parser took white space next to tags.
    spaces: bool,
    /// The end token is counted.
    ends: bool,
}

/// What a server probably said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Guessed {
    /// The whole text, with what parsers took out.
    pub(super) text: String,
    /// The end token is counted.
    pub(super) ends: bool,
}

/// What was probably said, so that it counts as `wanted` if one of the ways in which such answers are
/// written gives that; else as near to it as they come.
pub(super) fn guess(choice: &Choice, wanted: Option<i64>, how: (&Tokenizer, &Flavour)) -> Guessed {
    let (tokenizer, flavour) = how;
    let guesses = guesses(choice, flavour);
    let mut written = guesses.iter().map(|&guess| Guessed {
        text: written(choice, guess, flavour),
        ends: guess.ends,
    });
    let count =
        |guessed: &Guessed| signed(tokenizer.vocab.count(&guessed.text)) + i64::from(guessed.ends);
    // The first of equals is the likeliest.
    let nearest = match wanted {
        Some(wanted) => written.min_by_key(|guessed| (wanted - count(guessed)).abs()),
        None => written.next(),
    };
    nearest.expect("there is always a guess")
}

/// Ways to write a choice, likeliest first.
fn guesses(choice: &Choice, flavour: &Flavour) -> Vec<Guess> {
    let thinks = !choice.reasoning.is_empty();
    let is_cut = !matches!(
        choice.finish,
        Some(FinishReason::Stop | FinishReason::ToolCalls)
    );
    let is_stopped = matches!(choice.stop, Some(StopReason::Text(_)));
    let goes_on = !choice.content.is_empty() || !choice.calls.is_empty();
    let ends = if is_cut || is_stopped || !flavour.counts_end {
        [false, true]
    } else {
        [true, false]
    };
    // Without reasoning there are no tags to guess.
    let both = |likelier: bool| {
        let ways = [likelier, !likelier].into_iter();
        ways.take(if thinks { 2 } else { 1 })
    };
    let mut guesses = Vec::new();
    for ends in ends {
        for closes in both(thinks && (goes_on || !is_cut)) {
            for opens in both(thinks) {
                for spaces in [false, true] {
                    guesses.push(Guess {
                        opens,
                        closes,
                        spaces,
                        ends,
                    });
                }
            }
        }
    }
    guesses
}

fn written(choice: &Choice, guess: Guess, flavour: &Flavour) -> String {
    let mut text = String::new();
    thought(choice, guess, flavour, &mut text);
    text.push_str(&choice.content);
    for call in &choice.calls {
        if guess.spaces && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        write_call(call, flavour, &mut text);
    }
    if let Some(StopReason::Text(stop)) = &choice.stop {
        text.push_str(stop);
    }
    text
}

fn thought(choice: &Choice, guess: Guess, flavour: &Flavour, out: &mut String) {
    if choice.reasoning.is_empty() {
        return;
    }
    let [behind_open, before_close, behind_close] = &flavour.spaces;
    if guess.opens {
        out.push_str(&flavour.think.open);
        if guess.spaces && !choice.reasoning.starts_with(&**behind_open) {
            out.push_str(behind_open);
        }
    }
    out.push_str(&choice.reasoning);
    if guess.closes {
        if guess.spaces && !choice.reasoning.ends_with(&**before_close) {
            out.push_str(before_close);
        }
        out.push_str(&flavour.think.close);
        if guess.spaces && !choice.content.starts_with(&**behind_close) {
            out.push_str(behind_close);
        }
    }
}

fn write_call(call: &Call, flavour: &Flavour, out: &mut String) {
    if let Some(Pair { open, close }) = flavour.calls.first() {
        let name = serde_json::to_string(&call.name).expect("a string encodes");
        let arguments = &call.arguments;
        let written = format!("{open}\n{{\"name\": {name}, \"arguments\": {arguments}}}\n{close}");
        out.push_str(&written);
    }
}
