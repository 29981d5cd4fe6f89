//! Doubles as the worker's JSON library prints them.

/// Shortest digits that read back the same; integral ones end in `.0`, and an exponent appears below
/// 1e-4 and from 1e15 on.
pub fn float(value: f64) -> String {
    if !value.is_finite() {
        return "null".into();
    }
    if value == 0.0 {
        return if value.is_sign_negative() {
            "-0.0"
        } else {
            "0.0"
        }
        .into();
    }
    let shown = format!("{value:e}");
    let (mantissa, exponent) = shown.split_once('e').expect("`e` stands in it");
    let exponent: i32 = exponent.parse().expect("a number stands behind `e`");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    let count = i32::try_from(digits.len()).expect("a double has few digits");
    let point = exponent + 1;
    if (count..=15).contains(&point) {
        let zeros = "0".repeat(usize::try_from(point - count).expect("not negative"));
        return format!("{sign}{digits}{zeros}.0");
    }
    if (1..=15).contains(&point) {
        let (whole, rest) = digits.split_at(usize::try_from(point).expect("not negative"));
        return format!("{sign}{whole}.{rest}");
    }
    if (-3..=0).contains(&point) {
        let zeros = "0".repeat(usize::try_from(-point).expect("not negative"));
        return format!("{sign}0.{zeros}{digits}");
    }
    let sign_of_exponent = if exponent < 0 { '-' } else { '+' };
    let exponent = exponent.unsigned_abs();
    format!("{sign}{mantissa}e{sign_of_exponent}{exponent:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_have_the_recorded_form() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-5.0, "-5.0"),
            (2.6, "2.6"),
            (10.341_454, "10.341454"),
            (6.603_118_999_919_388, "6.603118999919388"),
            (773.585_609_915_201_4, "773.5856099152014"),
            (1e12, "1000000000000.0"),
            (1e14, "100000000000000.0"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (0.000_1, "0.0001"),
            (0.000_012, "1.2e-05"),
            (f64::NAN, "null"),
            (f64::INFINITY, "null"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn doubles_read_back_the_same(bits: u64) {
            let value = f64::from_bits(bits);
            if value.is_finite() {
                let read: f64 = float(value).parse().unwrap();
                proptest::prop_assert_eq!(read.to_bits(), value.to_bits());
            }
        }
    }
}
