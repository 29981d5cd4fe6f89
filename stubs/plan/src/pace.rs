//! When each step of an answer is due.

use std::str::FromStr;
use std::time::Duration;

/// The rhythm of an answer, from the request's arrival on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pace {
    /// Everything at once.
    #[default]
    Burst,
    /// The first step after `ttft`, each further one `itl` later.
    Steady {
        /// Time to the first step.
        ttft: Duration,
        /// Time between steps.
        itl: Duration,
    },
}

impl Pace {
    /// When engine step number `step`, counted from 0, is due.
    pub fn due(self, step: u32) -> Duration {
        match self {
            Self::Burst => Duration::ZERO,
            Self::Steady { ttft, itl } => ttft.saturating_add(itl.saturating_mul(step)),
        }
    }
}

/// A pace that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no pace; use `burst` or `steady:ttft=50ms,itl=10ms`")]
pub struct PaceError(String);

impl FromStr for Pace {
    type Err = PaceError;

    fn from_str(spec: &str) -> Result<Self, PaceError> {
        let error = || PaceError(spec.to_owned());
        if spec == "burst" {
            return Ok(Self::Burst);
        }
        let options = spec.strip_prefix("steady:").ok_or_else(error)?;
        let mut ttft = None;
        let mut itl = None;
        for option in options.split(',') {
            let (name, value) = option.split_once('=').ok_or_else(error)?;
            let value = humantime::parse_duration(value).map_err(|_| error())?;
            let known = match name {
                "ttft" => &mut ttft,
                "itl" => &mut itl,
                _ => return Err(error()),
            };
            if known.replace(value).is_some() {
                return Err(error());
            }
        }
        let itl = itl.or(ttft).ok_or_else(error)?;
        Ok(Self::Steady {
            ttft: ttft.unwrap_or(itl),
            itl,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn specs_are_read() {
        let steady = |ttft, itl| Pace::Steady {
            ttft: ttft * MS,
            itl: itl * MS,
        };
        assert_eq!("burst".parse(), Ok(Pace::Burst));
        assert_eq!("steady:ttft=50ms,itl=10ms".parse(), Ok(steady(50, 10)));
        assert_eq!("steady:itl=0.1s".parse(), Ok(steady(100, 100)));
        assert_eq!("steady:ttft=2s".parse(), Ok(steady(2000, 2000)));
        for bad in [
            "",
            "steady",
            "steady:",
            "steady:itl=5",
            "steady:itl=-1ms",
            "steady:x=1ms",
            "steady:ttft=1ms,ttft=2ms",
            "fast",
        ] {
            assert!(bad.parse::<Pace>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn due_times_never_decrease(ttft in 0_u32..10_000, itl in 0_u32..10_000, step in 0_u32..u32::MAX) {
            let pace = Pace::Steady { ttft: ttft * MS, itl: itl * MS };
            prop_assert!(pace.due(step) <= pace.due(step.saturating_add(1)));
        }
    }
}
