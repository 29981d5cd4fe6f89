//! Values taken for other types, as pydantic does in lax mode.

use crate::json::Json;
use crate::python::{self, Number};

/// Digits that Python converts to an integer.
const MAX_DIGITS: usize = 4300;

/// Why a value was not taken for another type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Coercion {
    /// `bool_parsing`
    BoolParsing,
    /// `bool_type`
    BoolType,
    /// `finite_number`
    FiniteNumber,
    /// `float_parsing`
    FloatParsing,
    /// `float_type`
    FloatType,
    /// `int_from_float`
    IntFromFloat,
    /// `int_parsing`
    IntParsing,
    /// `int_parsing_size`
    IntParsingSize,
    /// `int_type`
    IntType,
    /// `string_unicode`
    StringUnicode,
}

impl Coercion {
    pub(super) fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::BoolParsing => (
                "bool_parsing",
                "Input should be a valid boolean, unable to interpret input",
            ),
            Self::BoolType => ("bool_type", "Input should be a valid boolean"),
            Self::FiniteNumber => ("finite_number", "Input should be a finite number"),
            Self::FloatParsing => (
                "float_parsing",
                "Input should be a valid number, unable to parse string as a number",
            ),
            Self::FloatType => ("float_type", "Input should be a valid number"),
            Self::IntFromFloat => (
                "int_from_float",
                "Input should be a valid integer, got a number with a fractional part",
            ),
            Self::IntParsing => (
                "int_parsing",
                "Input should be a valid integer, unable to parse string as an integer",
            ),
            Self::IntParsingSize => (
                "int_parsing_size",
                "Unable to parse input string as an integer, exceeded maximum size",
            ),
            Self::IntType => ("int_type", "Input should be a valid integer"),
            Self::StringUnicode => (
                "string_unicode",
                "Input should be a valid string, unable to parse raw data as a unicode string",
            ),
        }
    }
}

/// A value as an `int` field takes it.
pub fn int(value: &Json<'_>) -> Result<i128, Coercion> {
    match value {
        Json::Bool(flag) => Ok(i128::from(*flag)),
        Json::Number(text) => match python::number(text) {
            Number::Int(number) => Ok(number),
            Number::Float(number) if !number.is_finite() => Err(Coercion::FiniteNumber),
            Number::Float(number) if number.fract() != 0.0 => Err(Coercion::IntFromFloat),
            Number::Float(number) if number.abs() >= 9_223_372_036_854_775_808.0 => {
                Err(Coercion::IntParsingSize)
            }
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^63")]
            Number::Float(number) => Ok(number as i128),
        },
        Json::String(text) if text.len() > MAX_DIGITS => Err(Coercion::IntParsingSize),
        Json::String(text) => int_of_text(text.trim()).ok_or(Coercion::IntParsing),
        Json::Surrogates(_) => Err(Coercion::StringUnicode),
        _ => Err(Coercion::IntType),
    }
}

fn int_of_text(text: &str) -> Option<i128> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = match digits.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => {
            whole
        }
        Some(_) => return None,
        None => digits,
    };
    let number: i128 = ungroup(whole)?.parse().ok()?;
    Some(if text.starts_with('-') {
        -number
    } else {
        number
    })
}

/// Digits without the single underscores that may stand between them.
fn ungroup(text: &str) -> Option<String> {
    let valid = text
        .split('_')
        .all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()));
    valid.then(|| text.replace('_', ""))
}

/// A value as a `float` field takes it.
pub fn float(value: &Json<'_>) -> Result<f64, Coercion> {
    match value {
        Json::Bool(flag) => Ok(f64::from(u8::from(*flag))),
        Json::Number(text) => Ok(match python::number(text) {
            Number::Float(number) => number,
            #[expect(clippy::cast_precision_loss, reason = "as Python rounds")]
            Number::Int(number) => number as f64,
        }),
        Json::String(text) => float_of_text(text.trim()).ok_or(Coercion::FloatParsing),
        Json::Surrogates(_) => Err(Coercion::StringUnicode),
        _ => Err(Coercion::FloatType),
    }
}

fn float_of_text(text: &str) -> Option<f64> {
    let grouped = text.contains('_');
    if grouped {
        let whole = text.split(['.', 'e', 'E']).next().unwrap_or(text);
        ungroup(whole.strip_prefix(['+', '-']).unwrap_or(whole))?;
    }
    text.replace('_', "").parse().ok()
}

/// A value as a `bool` field takes it.
pub fn bool(value: &Json<'_>) -> Result<bool, Coercion> {
    match value {
        Json::Bool(flag) => Ok(*flag),
        Json::Number(text) => match python::number(text) {
            Number::Float(0.0) | Number::Int(0) => Ok(false),
            Number::Int(1) => Ok(true),
            Number::Int(number) if i64::try_from(number).is_ok() => Err(Coercion::BoolParsing),
            Number::Float(number) if (number - 1.0).abs() == 0.0 => Ok(true),
            Number::Float(number) if number.fract() == 0.0 && number.abs() < 9.3e18 => {
                Err(Coercion::BoolParsing)
            }
            _ => Err(Coercion::BoolType),
        },
        Json::String(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "on" | "t" | "true" | "y" | "yes" => Ok(true),
            "0" | "f" | "false" | "n" | "no" | "off" => Ok(false),
            _ => Err(Coercion::BoolParsing),
        },
        Json::Surrogates(_) => Err(Coercion::StringUnicode),
        _ => Err(Coercion::BoolType),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_coerced_as_pydantic_does() {
        use Coercion::{FiniteNumber, IntFromFloat, IntParsing, IntParsingSize, IntType};
        for (text, expected) in [
            ("true", Ok(1)),
            ("5.0", Ok(5)),
            ("-0.0", Ok(0)),
            ("\" 5 \"", Ok(5)),
            ("\"-5.00\"", Ok(-5)),
            ("\"1_000\"", Ok(1000)),
            ("\"007\"", Ok(7)),
            ("5.5", Err(IntFromFloat)),
            ("1e19", Err(IntParsingSize)),
            ("NaN", Err(FiniteNumber)),
            ("\"5.\"", Err(IntParsing)),
            ("\".0\"", Err(IntParsing)),
            ("\"1e3\"", Err(IntParsing)),
            ("\"1__0\"", Err(IntParsing)),
            ("\"\"", Err(IntParsing)),
            ("null", Err(IntType)),
            ("[1]", Err(IntType)),
        ] {
            assert_eq!(
                int(&Json::parse(text.as_bytes()).unwrap()),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn bools_are_coerced_as_pydantic_does() {
        use Coercion::{BoolParsing, BoolType};
        for (text, expected) in [
            ("\"yes\"", Ok(true)),
            ("\"tRuE\"", Ok(true)),
            ("\"off\"", Ok(false)),
            ("1.0", Ok(true)),
            ("0", Ok(false)),
            ("2", Err(BoolParsing)),
            ("5.0", Err(BoolParsing)),
            ("\" true\"", Err(BoolParsing)),
            ("5.5", Err(BoolType)),
            ("1e19", Err(BoolType)),
            ("NaN", Err(BoolType)),
            ("null", Err(BoolType)),
        ] {
            assert_eq!(
                bool(&Json::parse(text.as_bytes()).unwrap()),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn floats_are_coerced_as_pydantic_does() {
        for (text, expected) in [
            ("\"1_000.5\"", Ok(1000.5)),
            ("\" 5. \"", Ok(5.0)),
            ("\"1e3\"", Ok(1000.0)),
            ("\"Infinity\"", Ok(f64::INFINITY)),
            ("\"_1\"", Err(Coercion::FloatParsing)),
            ("\"0x10\"", Err(Coercion::FloatParsing)),
            ("{}", Err(Coercion::FloatType)),
        ] {
            assert_eq!(
                float(&Json::parse(text.as_bytes()).unwrap()),
                expected,
                "{text}"
            );
        }
    }
}
