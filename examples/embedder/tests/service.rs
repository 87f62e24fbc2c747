//! Tests of the service as a process: tenants side by side, the operator's policy, an orderly end,
//! a kill, and the next start.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const DIRECTIVE: &str = "---\ncapabilities: [execute.tool.read_file]\n---\nDo the work.\n";
/// A script whose second turn takes DELAY ms: a minute in a run that is stopped during it, none
/// after the restart.
const SLOW: &str = r#"[
  {"text": "begun", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]},
  {"text": "done", "delay_ms": DELAY}
]"#;

/// Creates a fresh folder of tenants: each has a directive `work` and a model with this script.
fn create_tenants(name: &str, names: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&root);
    for tenant in names {
        let ai = root.join("tenants").join(tenant).join(".ai");
        std::fs::create_dir_all(ai.join("directives")).unwrap();
        std::fs::create_dir_all(ai.join("config")).unwrap();
        std::fs::write(root.join("tenants").join(tenant).join("notes.txt"), *tenant).unwrap();
        std::fs::write(ai.join("directives/work.md"), DIRECTIVE).unwrap();
        write_model_table(&root, tenant, "script");
        write_script(&root, tenant, 0);
    }
    root
}

fn write_model_table(root: &Path, tenant: &str, name: &str) {
    let table = format!(
        "providers: {{{name}: {{wire: scripted, file: script.json}}}}\nmodels:\n  tiny: \
         {{provider: {name}, window: 32000, \
         output: 500, prices: {{input: \"1\", output: \"2\"}}}}\ntiers: {{default: tiny}}\n"
    );
    std::fs::write(
        root.join("tenants")
            .join(tenant)
            .join(".ai/config/models.yaml"),
        table,
    )
    .unwrap();
}

fn write_script(root: &Path, tenant: &str, delay_ms: u32) {
    let text = SLOW.replace("DELAY", &delay_ms.to_string());
    std::fs::write(
        root.join("tenants").join(tenant).join(".ai/script.json"),
        text,
    )
    .unwrap();
}

/// The running service; killed when dropped.
struct ServiceProcess {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    /// The lines that it printed before it listened.
    before: Vec<String>,
    address: String,
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServiceProcess {
    fn start(root: &Path) -> Self {
        // All tests share one cache: the component is compiled once.
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native-code");
        let mut child = Command::new(env!("CARGO_BIN_EXE_service"))
            .arg(root.join("tenants"))
            .arg(cache)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/policy.yaml"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut before = Vec::new();
        loop {
            let line = said.next().expect("it listens").unwrap();
            match line.strip_prefix("listening on ") {
                Some(address) => {
                    let address = address.to_owned();
                    return Self {
                        child,
                        said,
                        before,
                        address,
                    };
                }
                None => before.push(line),
            }
        }
    }

    fn connect(&self) -> ServiceClient {
        ServiceClient(BufReader::new(TcpStream::connect(&self.address).unwrap()))
    }

    fn signal(&self, which: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([which, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Returns all lines that it prints from now to its end.
    fn remaining_lines(&mut self) -> Vec<String> {
        self.said.by_ref().map(Result::unwrap).collect()
    }
}

struct ServiceClient(BufReader<TcpStream>);

impl ServiceClient {
    fn send(&mut self, request: &str) {
        self.0
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .unwrap();
    }

    fn answer(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, request: &str) -> serde_json::Value {
        self.send(request);
        self.answer()
    }
}

/// Waits until the run of a tenant has written its first turn; returns the id of its thread.
fn wait_for_first_turn(root: &Path, tenant: &str) -> String {
    let threads = root.join("tenants").join(tenant).join(".ai/threads");
    loop {
        let folders = std::fs::read_dir(&threads).into_iter().flatten().flatten();
        for folder in
            folders.filter(|entry| entry.file_name().to_string_lossy().starts_with("work-"))
        {
            let log = std::fs::read_to_string(folder.path().join("transcript.jsonl"));
            if log.is_ok_and(|text| text.contains("tool_result")) {
                return folder.file_name().to_string_lossy().into_owned();
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn tenants_are_served_side_by_side_within_the_operators_policy() {
    let root = create_tenants("side-by-side", &["a", "b", "c"]);
    write_model_table(&root, "c", "elsewhere");
    let service = ServiceProcess::start(&root);
    let (mut one, mut two) = (service.connect(), service.connect());
    one.send("a run work {}");
    two.send("b run work {}");
    for client in [&mut one, &mut two] {
        let answer = client.answer();
        assert_eq!(answer["status"], "completed", "{answer}");
        assert_eq!(answer["result"], "done", "{answer}");
    }
    // A tenant's own file cannot grant what the operator does not.
    let refused = one.ask("c run work {}");
    assert_ne!(refused["status"], "completed", "{refused}");
    // A thread of another tenant does not exist for this one.
    let thread = one.ask("a run work {}")["thread"]
        .as_str()
        .unwrap()
        .to_owned();
    let foreign = two.ask(&format!("b resume {thread}"));
    assert!(
        foreign["error"]
            .as_str()
            .unwrap()
            .contains("there is no thread"),
        "{foreign}"
    );
    for (request, word) in [
        ("d run work {}", "tenant"),
        ("a dance", "say"),
        ("a run wrok {}", "wrok"),
    ] {
        let answer = one.ask(request);
        assert!(
            answer["error"].as_str().unwrap().contains(word),
            "{request}: {answer}"
        );
    }
}

/// Returns the tenants whose stores the service has open.
fn open_stores(root: &Path, service: &ServiceProcess) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{}/fd", service.child.id())).unwrap();
    let root = root.canonicalize().unwrap().join("tenants");
    let mut open: Vec<_> = files
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.ends_with(".ai/threads/registry.db"))
        .filter_map(|path| Some(path.strip_prefix(&root).ok()?.iter().next()?.to_owned()))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    open.sort();
    open.dedup();
    open
}

#[test]
fn a_tenant_that_cannot_be_served_is_its_own_trouble_and_stores_open_on_first_use() {
    let root = create_tenants("trouble", &["a", "b", "broken", "hopeless"]);
    let at = |tenant: &str| root.join("tenants").join(tenant).join(".ai");
    std::fs::create_dir(at("broken").join("threads")).unwrap();
    let store = at("broken").join("threads/registry.db");
    std::fs::write(&store, "no database".repeat(1_000)).unwrap();
    std::fs::write(at("hopeless").join("threads"), "a file").unwrap();
    let service = ServiceProcess::start(&root);
    let none: [&str; 0] = [];
    assert_eq!(open_stores(&root, &service), none);
    let mut client = service.connect();
    for _ in 0..2 {
        assert_eq!(client.ask("a run work {}")["status"], "completed");
        for tenant in ["broken", "hopeless"] {
            let answer = client.ask(&format!("{tenant} run work {{}}"));
            assert!(answer["error"].is_string(), "{tenant}: {answer}");
        }
        assert_eq!(open_stores(&root, &service), ["a"]);
    }
    // After the repair the same process serves it.
    std::fs::remove_file(&store).unwrap();
    assert_eq!(client.ask("broken run work {}")["status"], "completed");
    assert_eq!(open_stores(&root, &service), ["a", "broken"]);
    assert_eq!(client.ask("b run work {}")["status"], "completed");
}

#[test]
fn a_run_that_is_stopped_by_the_end_of_the_service_goes_on_in_the_next() {
    let root = create_tenants("orderly", &["a"]);
    write_script(&root, "a", 60_000);
    let mut service = ServiceProcess::start(&root);
    let (mut client, _idle) = (service.connect(), service.connect());
    client.send("a run work {}");
    let thread = wait_for_first_turn(&root, "a");
    service.signal("-TERM");
    let answer = client.answer();
    assert_eq!(
        (&answer["status"], &answer["code"]),
        (&"suspended".into(), &"stopped".into()),
        "{answer}"
    );
    assert_eq!(
        service.remaining_lines(),
        ["shutting down", "all runs are written"]
    );

    write_script(&root, "a", 0);
    let service = ServiceProcess::start(&root);
    assert_eq!(service.before, [""; 0]);
    let answer = service.connect().ask(&format!("a resume {thread}"));
    assert_eq!(
        (&answer["status"], &answer["result"]),
        (&"completed".into(), &"done".into()),
        "{answer}"
    );
}

#[test]
fn a_run_that_dies_with_the_service_is_recovered_by_the_next() {
    let root = create_tenants("killed", &["a"]);
    write_script(&root, "a", 60_000);
    let service = ServiceProcess::start(&root);
    let mut client = service.connect();
    client.send("a run work {}");
    let thread = wait_for_first_turn(&root, "a");
    service.signal("-KILL");
    drop(service);

    write_script(&root, "a", 0);
    let service = ServiceProcess::start(&root);
    assert_eq!(service.before, [format!("recovered a/{thread}")]);
    let answer = service.connect().ask(&format!("a resume {thread}"));
    assert_eq!(
        (&answer["status"], &answer["result"]),
        (&"completed".into(), &"done".into()),
        "{answer}"
    );
}
