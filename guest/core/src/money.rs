//! Money from outside; its arithmetic and text are in `threadkeep-units`.

use crate::error::Error;
pub use threadkeep_units::money::{AmountError, NanoUsd};

/// Checks the cost of one call, as it is reported from outside.
///
/// # Errors
/// `ErrorKind::Invalid` for more than [`NanoUsd::BILL_MAX`]; `field` says where.
pub fn check_bill(field: &str, nanos: u64) -> Result<NanoUsd, Error> {
    let bill = NanoUsd::new(nanos);
    if bill <= NanoUsd::BILL_MAX {
        return Ok(bill);
    }
    let most = NanoUsd::BILL_MAX;
    let problem = format!("is more than {most} USD, the most of one call");
    Err(Error::invalid(field, &bill.to_string(), problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bill_is_bounded() {
        let most = NanoUsd::BILL_MAX.get();
        for (nanos, fits) in [
            (0, true),
            (most, true),
            (most + 1, false),
            (u64::MAX, false),
        ] {
            assert_eq!(check_bill("cost", nanos).is_ok(), fits, "{nanos}");
        }
        let error = check_bill("cost", most + 1).unwrap_err().to_string();
        assert!(error.contains("1000000.00 USD"), "{error}");
    }
}
