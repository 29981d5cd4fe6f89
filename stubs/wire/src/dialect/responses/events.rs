//! The events of a streamed response.

use serde::Serialize;

use crate::chunk::TokenLogprob;

use super::items::{OutputItem, Part, ResponseToken};
use super::{Event, Item, ItemKind, Place, Progress, Spelling, Status};

/// Appends an event of the response as a whole, its name included.
pub(in crate::dialect) fn encode_progress(
    spelling: Spelling,
    (progress, status): (Progress, Status),
    response: &impl Serialize,
    sequence_number: u64,
    out: &mut Vec<u8>,
) {
    let kind = match (progress, status) {
        (Progress::Created, _) => "response.created",
        (Progress::Ended, Status::Failed) => "response.failed",
        (Progress::Ended, Status::Incomplete) if spelling.tells_incomplete => "response.incomplete",
        (Progress::Ended, _) => "response.completed",
        (Progress::InProgress, _) => "response.in_progress",
    };
    let event = ResponseEvent {
        first_kind: spelling.type_first.then_some(kind),
        response,
        sequence_number,
        kind: (!spelling.type_first).then_some(kind),
    };
    write_event(kind, &event, out);
}

/// Appends an event of an item, its name included.
pub(in crate::dialect) fn encode_event(
    spelling: Spelling,
    item: &Item,
    event: Event<'_>,
    place: Place,
    out: &mut Vec<u8>,
) {
    let kind = item.kind.event_name(event);
    let Place {
        output_index,
        sequence_number,
    } = place;
    match event {
        Event::ItemAdded | Event::ItemDone => {
            let event = ItemEvent {
                item: OutputItem::new(spelling, item),
                output_index,
                sequence_number,
                kind,
            };
            write_event(kind, &event, out);
        }
        Event::PartAdded | Event::PartDone => {
            let event = PartEvent {
                content_index: 0,
                item_id: &item.id,
                output_index,
                part: Part::of(spelling, item, event == Event::PartAdded),
                sequence_number,
                kind,
            };
            write_event(kind, &event, out);
        }
        Event::Delta(text, logprobs) => {
            text_event(spelling, item, (Some(text), logprobs), place, out);
        }
        Event::TextDone => text_event(spelling, item, (None, &[]), place, out),
    }
}

fn write_event(name: &str, event: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    write(out, event);
    out.extend_from_slice(b"\n\n");
}

/// An event of an item's text: a piece of it, or all at its end.
fn text_event(
    spelling: Spelling,
    item: &Item,
    (delta, logprobs): (Option<&str>, &[TokenLogprob]),
    place: Place,
    out: &mut Vec<u8>,
) {
    let event = delta.map_or(Event::TextDone, |delta| Event::Delta(delta, &[]));
    let kind = item.kind.event_name(event);
    let text = delta.is_none().then_some(&*item.text);
    if let ItemKind::Call { name, .. } = &item.kind {
        let event = ArgumentsEvent {
            arguments: text,
            delta,
            item_id: &item.id,
            inner_name: text.map(|_| &**name).filter(|_| spelling.name_inside),
            output_index: place.output_index,
            sequence_number: place.sequence_number,
            kind,
            name: text.map(|_| &**name).filter(|_| !spelling.name_inside),
        };
        return write_event(kind, &event, out);
    }
    let event = TextEvent {
        content_index: 0,
        delta,
        item_id: &item.id,
        logprobs: (item.kind == ItemKind::Message).then(|| ResponseToken::list(logprobs, true)),
        output_index: place.output_index,
        sequence_number: place.sequence_number,
        text,
        kind,
    };
    write_event(kind, &event, out);
}

impl ItemKind {
    fn event_name(&self, event: Event<'_>) -> &'static str {
        match (event, self) {
            (Event::Delta(..), Self::Call { .. }) => "response.function_call_arguments.delta",
            (Event::Delta(..), Self::Message) => "response.output_text.delta",
            (Event::Delta(..), Self::Reasoning) => "response.reasoning_text.delta",
            (Event::ItemAdded, _) => "response.output_item.added",
            (Event::ItemDone, _) => "response.output_item.done",
            (Event::PartAdded, _) => "response.content_part.added",
            (Event::PartDone, _) => "response.content_part.done",
            (Event::TextDone, Self::Call { .. }) => "response.function_call_arguments.done",
            (Event::TextDone, Self::Message) => "response.output_text.done",
            (Event::TextDone, Self::Reasoning) => "response.reasoning_text.done",
        }
    }
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("strings and numbers encode");
}

#[derive(Serialize)]
struct ResponseEvent<'a, R> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    first_kind: Option<&'static str>,
    response: &'a R,
    sequence_number: u64,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
}

#[derive(Serialize)]
struct ItemEvent<'a> {
    item: OutputItem<'a>,
    output_index: usize,
    sequence_number: u64,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct PartEvent<'a> {
    content_index: u32,
    item_id: &'a str,
    output_index: usize,
    part: Part<'a>,
    sequence_number: u64,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct TextEvent<'a> {
    content_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    item_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<ResponseToken<'a>>>,
    output_index: usize,
    sequence_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct ArgumentsEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    item_id: &'a str,
    #[serde(rename = "name", skip_serializing_if = "Option::is_none")]
    inner_name: Option<&'a str>,
    output_index: usize,
    sequence_number: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}
