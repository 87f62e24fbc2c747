//! The ports of the service over a store: any log, and the limits of a commit.

use super::fixture::RunnerFixture;
use threadkeep::storage;
use threadkeep_component::ports::HostPorts;
use threadkeep_core::plan::{COMMIT_BYTES_MAX, COMMIT_OPS_MAX, StoreWrite};

#[test]
fn ports_read_append_to_and_trim_any_log() {
    let world = RunnerFixture::new();
    let ports = world.service.ports();
    for log in ["history", "blob"] {
        let append = |at: u64| StoreWrite::Append {
            log,
            partition: "p".to_owned(),
            at,
            value: format!("{log} {at}"),
        };
        let trim = StoreWrite::Trim {
            log,
            partition: "p".to_owned(),
            below: 2,
        };
        let writes = vec![append(1), append(2), trim, append(3)];
        assert_eq!(ports.commit(writes, false), Ok(true));
    }
    for log in ["history", "blob"] {
        let lines = ports.read_log(log, "p", 0, 10, false).unwrap();
        let expected = [2, 3].map(|at| (at, format!("{log} {at}")));
        assert_eq!(lines, expected);
    }
}

/// A joined plan is bounded as every store bounds a commit.
#[test]
fn core_knows_the_limits_of_a_commit() {
    let (ops, bytes) = (storage::COMMIT_OPS_MAX, storage::COMMIT_BYTES_MAX);
    assert_eq!((COMMIT_OPS_MAX, COMMIT_BYTES_MAX), (ops, bytes));
}
