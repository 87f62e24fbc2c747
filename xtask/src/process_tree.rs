//! The processes below one, as Linux lists them: what they are and what their threads wait in. On
//! other systems nothing is found.

use std::fmt::Write;
use std::fs;

/// Returns the processes that one has started, and theirs, each before those that it started.
pub fn list_started(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let mut started = Vec::new();
    for thread in threads {
        let children = fs::read_to_string(thread.path().join("children"));
        for child in children.unwrap_or_default().split_whitespace() {
            if let Ok(child) = child.parse() {
                started.push(child);
                started.extend(list_started(child));
            }
        }
    }
    started
}

/// Describes processes: the command of each, then a line for each of its threads with its name (a
/// test's thread has that of the test), its state and the function of the kernel that it waits in.
pub fn describe_all(processes: &[u32]) -> String {
    let mut text = String::new();
    for process in processes {
        let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let _ = writeln!(text, "process {process}: {command}");
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let read = |file: &str| {
                let content = fs::read_to_string(thread.path().join(file));
                content.unwrap_or_default().trim().to_owned()
            };
            // The state is the letter behind the name in parentheses.
            let status = read("stat");
            let state = status.rsplit(") ").next().unwrap_or_default();
            let state = state.split(' ').next().unwrap_or_default();
            let _ = writeln!(text, "  {} {state} {}", read("comm"), read("wchan"));
        }
    }
    text
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_waits_is_described_with_its_threads() {
        let mut sleeper = Command::new("sleep").arg("600").spawn().expect("it starts");
        let started = list_started(std::process::id());
        assert!(started.contains(&sleeper.id()), "{started:?}");
        let told = describe_all(&[sleeper.id()]);
        let _ = sleeper.kill();
        let _ = sleeper.wait();
        assert!(told.contains("  sleep "), "{told}");
    }
}
